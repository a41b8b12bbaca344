import type { FastifyReply } from 'fastify';

/** The one way to say no: Nix shows the text of an error to its user, so it stays short. */
export function notFound(reply: FastifyReply): FastifyReply {
  return reply.code(404).type('text/plain').send('not found\n');
}
