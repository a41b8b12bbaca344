import type { FastifyPluginCallbackTypebox } from '@fastify/type-provider-typebox';
import Type from 'typebox';
import { parseCacheName } from '../../../api/cache-name.ts';
import { ApiError } from '../../../api/problem.ts';
import { Cache, CacheCreate } from '../../../api/schemas.ts';
import { generateSecretKey, type SecretKey } from '../../../nix/keys.ts';
import { requireToken } from '../../auth.ts';
import type { CacheRecord, Catalogue } from '../../catalogue/catalogue.ts';
import { permittedCache } from '../caches.ts';

/** The parameters of every route below `/caches/{cache}`. */
export const CacheParams = Type.Object({ cache: Type.String({ maxLength: 100 }) });

export function cacheRoutes(catalogue: Catalogue): FastifyPluginCallbackTypebox {
  return (server, _options, done) => {
    server.post(
      '/caches',
      { schema: { body: CacheCreate, response: { 201: Cache } } },
      async (request, reply) => {
        const token = await requireToken(catalogue, request);
        if (!token.permissions.includes('manage') || !token.caches.includes('*')) {
          throw new ApiError(403, 'forbidden', `the token '${token.name}' may not create caches`, {
            hint: "use a token with the permission 'manage' for all caches",
          });
        }
        const { name: text, public: isPublic = true, priority = 30 } = request.body;
        const name = parseCacheName(text);
        // The number tells a later key of the same cache from this one: Nix finds keys by name.
        const key = generateSecretKey(`${name}-1`);
        const cache = await catalogue.createCache({ name, public: isPublic, priority, key });
        return reply.code(201).send(cacheAnswer(cache, [key]));
      },
    );

    server.get(
      '/caches/:cache',
      { schema: { params: CacheParams, response: { 200: Cache } } },
      async (request) => {
        const cache = await permittedCache(catalogue, request, request.params.cache, 'read');
        return cacheAnswer(cache, await catalogue.signingKeys(cache.id));
      },
    );
    done();
  };
}

function cacheAnswer(cache: CacheRecord, keys: readonly SecretKey[]): Cache {
  return {
    name: cache.name,
    public: cache.public,
    storeDir: cache.storeDir ?? null,
    priority: cache.priority,
    publicKeys: keys.map((key) => key.publicKey.text),
  };
}
