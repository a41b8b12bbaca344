import type { FastifyPluginCallback } from 'fastify';
import { notFound } from '../../../api/http/not-found.ts';
import type { Catalogue } from '../../catalogue/catalogue.ts';
import { readableCache } from '../caches.ts';

/** GET /{cache}/nix-cache-info. StoreDir is left out until the first entry fixes it: Nix then takes its own. */
export function cacheInfoRoute(catalogue: Catalogue): FastifyPluginCallback {
  return (server, _options, done) => {
    server.get<{ Params: { cache: string } }>('/:cache/nix-cache-info', async (request, reply) => {
      const cache = await readableCache(catalogue, request, request.params.cache);
      if (cache === undefined) return notFound(reply);
      const lines = ['WantMassQuery: 1', `Priority: ${cache.priority}`];
      if (cache.storeDir !== undefined) lines.unshift(`StoreDir: ${cache.storeDir}`);
      return reply.type('text/x-nix-cache-info').send(`${lines.join('\n')}\n`);
    });
    done();
  };
}
