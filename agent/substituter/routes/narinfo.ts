import type { FastifyPluginCallback } from 'fastify';
import { narInfoHash } from '../../../api/http/narinfo-name.ts';
import { notFound } from '../../../api/http/not-found.ts';
import { NARINFO_TYPE } from '../../../nix/narinfo.ts';
import type { Substituter } from '../substituter.ts';

/** GET /<hash>.narinfo: the narinfo or 404, whatever happens upstream. */
export function narInfoRoute(opened: Promise<Substituter>): FastifyPluginCallback {
  return (server, _options, done) => {
    server.get<{ Params: { file: string } }>('/:file', async (request, reply) => {
      const hash = narInfoHash(request.params.file);
      if (hash === undefined) return notFound(reply);
      const text = await (await opened).narInfos.answer(hash);
      if (text === undefined) return notFound(reply);
      return reply.type(NARINFO_TYPE).send(Buffer.from(text));
    });
    done();
  };
}
