import type { FastifyPluginCallback, FastifyReply, FastifyRequest } from 'fastify';
import { parseRange } from '../../../api/byte-range.ts';
import { notFound } from '../../../api/http/not-found.ts';
import { sendBytes } from '../../../api/send-bytes.ts';
import type { NarBytes } from '../nar-bytes.ts';
import { parseNarName } from '../nar-name.ts';
import type { Substituter } from '../substituter.ts';

const NAR_HEADERS = {
  'content-type': 'application/x-nix-nar',
  'accept-ranges': 'bytes',
  'cache-control': 'public, immutable, max-age=31536000',
};

type NarRequest = FastifyRequest<{ Params: { file: string } }>;

/**
 * GET /nar/<store hash>-<nar hash>.nar<ext>. Nothing is sent before the first byte is there to be sent, so
 * that what cannot be had is a 404; what turns out wrong later cuts the connection.
 */
export function narRoute(opened: Promise<Substituter>): FastifyPluginCallback {
  return (server, _options, done) => {
    server.get('/nar/:file', { exposeHeadRoute: false }, async (request: NarRequest, reply) => {
      const name = parseNarName(request.params.file);
      const bytes = name && (await (await opened).nars.open(name));
      if (bytes === undefined) return notFound(reply);
      try {
        return await answer(bytes, request, reply);
      } finally {
        bytes.close();
      }
    });

    server.head('/nar/:file', async (request: NarRequest, reply) => {
      const name = parseNarName(request.params.file);
      const found = name && (await (await opened).nars.look(name));
      if (found === undefined) return notFound(reply);
      reply.headers(NAR_HEADERS);
      if (found.size !== undefined) reply.header('content-length', found.size);
      return reply.send();
    });
    done();
  };
}

async function answer(bytes: NarBytes, request: NarRequest, reply: FastifyReply): Promise<FastifyReply> {
  // There is no validator that an If-Range could match, so with one the whole is sent.
  const wanted = request.headers['if-range'] === undefined ? request.headers.range : undefined;
  if (wanted !== undefined && bytes.size === undefined) await bytes.ready(Number.POSITIVE_INFINITY);
  const range = bytes.size === undefined ? undefined : parseRange(wanted, bytes.size);
  if (range === 'unsatisfiable') {
    reply.code(416).header('content-range', `bytes */${bytes.size}`);
    return reply.type('text/plain').send('no such range\n');
  }
  const start = range?.start ?? 0;
  if (!(await bytes.ready(start))) return notFound(reply);
  const end = range?.end ?? bytes.size;
  const headers: Record<string, string | number> = { ...NAR_HEADERS };
  if (end !== undefined) headers['content-length'] = end - start;
  if (range !== undefined) headers['content-range'] = `bytes ${start}-${range.end - 1}/${bytes.size}`;
  const response = reply.hijack().raw;
  response.writeHead(range === undefined ? 200 : 206, headers);
  try {
    await sendBytes(bytes, start, end, response);
  } catch {
    // Why is in the log of the download. The client must see that this is not the end.
    response.destroy();
  }
  return reply;
}
