import type { FastifyPluginCallback } from 'fastify';
import { NARINFO_TYPE } from '../../../nix/narinfo.ts';
import { parseStorePathHash, type StorePathHash } from '../../../nix/store-path.ts';
import { notFound } from '../not-found.ts';
import type { Substituter } from '../substituter.ts';

/** GET /<hash>.narinfo: the narinfo or 404, whatever happens upstream. */
export function narInfoRoute(opened: Promise<Substituter>): FastifyPluginCallback {
  return (server, _options, done) => {
    server.get<{ Params: { file: string } }>('/:file', async (request, reply) => {
      const hash = hashOf(request.params.file);
      if (hash === undefined) return notFound(reply);
      const text = await (await opened).narInfos.answer(hash);
      if (text === undefined) return notFound(reply);
      return reply.type(NARINFO_TYPE).send(Buffer.from(text));
    });
    done();
  };
}

function hashOf(file: string): StorePathHash | undefined {
  if (!file.endsWith('.narinfo')) return undefined;
  try {
    return parseStorePathHash(file.slice(0, -'.narinfo'.length));
  } catch {
    return undefined;
  }
}
