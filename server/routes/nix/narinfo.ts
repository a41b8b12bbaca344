import type { FastifyPluginCallback } from 'fastify';
import { narInfoHash } from '../../../api/http/narinfo-name.ts';
import { notFound } from '../../../api/http/not-found.ts';
import { NARINFO_TYPE } from '../../../nix/narinfo.ts';
import type { Catalogue } from '../../catalogue/catalogue.ts';
import { readableCache } from '../caches.ts';

/** GET /{cache}/{hash}.narinfo, as it was rendered and signed at its commit. */
export function narInfoRoute(catalogue: Catalogue): FastifyPluginCallback {
  return (server, _options, done) => {
    server.get<{ Params: { cache: string; file: string } }>('/:cache/:file', async (request, reply) => {
      const { cache: name, file } = request.params;
      const hash = narInfoHash(file);
      const cache = hash && (await readableCache(catalogue, request, name));
      const text = cache && (await catalogue.narinfo(cache.id, hash));
      if (text === undefined) return notFound(reply);
      return reply.type(NARINFO_TYPE).send(Buffer.from(text));
    });
    done();
  };
}
