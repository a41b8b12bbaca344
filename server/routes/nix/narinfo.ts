import type { FastifyPluginCallback } from 'fastify';
import { NARINFO_TYPE } from '../../../nix/narinfo.ts';
import { parseStorePathHash, type StorePathHash } from '../../../nix/store-path.ts';
import type { Catalogue } from '../../catalogue/catalogue.ts';
import { readableCache } from '../caches.ts';
import { notFound } from './not-found.ts';

/** GET /{cache}/{hash}.narinfo, as it was rendered and signed at its commit. */
export function narInfoRoute(catalogue: Catalogue): FastifyPluginCallback {
  return (server, _options, done) => {
    server.get<{ Params: { cache: string; file: string } }>('/:cache/:file', async (request, reply) => {
      const { cache: name, file } = request.params;
      const hash = hashOf(file);
      const cache = hash && (await readableCache(catalogue, request, name));
      const text = cache && (await catalogue.narinfo(cache.id, hash));
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
