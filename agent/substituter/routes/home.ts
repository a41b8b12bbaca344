import type { FastifyPluginCallback } from 'fastify';

const TEXT = `This is the bcache agent, a substituter for the Nix on this machine.
Nix asks it for /nix-cache-info, /<hash>.narinfo and /nar/...; there is nothing else to see.
`;

/** GET / for the person who opens the address in a browser. */
export const homeRoute: FastifyPluginCallback = (server, _options, done) => {
  server.get('/', (_request, reply) => reply.type('text/plain; charset=utf-8').send(TEXT));
  done();
};
