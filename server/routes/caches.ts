import type { FastifyRequest } from 'fastify';
import { type CacheName, parseCacheName } from '../../api/cache-name.ts';
import { ApiError } from '../../api/problem.ts';
import type { Permission } from '../../api/schemas.ts';
import { FormatError } from '../../nix/errors.ts';
import { allows, authenticate, requireToken } from '../auth.ts';
import type { CacheRecord, Catalogue } from '../catalogue/catalogue.ts';

/**
 * The cache a Nix client asks of, if it may read it. A private cache is not to be told from one that does not
 * exist, so both are undefined.
 */
export async function readableCache(
  catalogue: Catalogue,
  request: FastifyRequest,
  name: string,
): Promise<CacheRecord | undefined> {
  const cache = await findCache(catalogue, name);
  if (cache === undefined || cache.public) return cache;
  return allows(await authenticate(catalogue, request), cache, 'read') ? cache : undefined;
}

/**
 * The cache an API call is about.
 *
 * @throws ApiError 401 without a valid token, 404 `unknown_cache` also where the token may not read it,
 *   403 `forbidden`
 */
export async function permittedCache(
  catalogue: Catalogue,
  request: FastifyRequest,
  name: string,
  permission: Permission,
): Promise<CacheRecord> {
  const token = await requireToken(catalogue, request);
  const cache = await findCache(catalogue, name);
  if (cache === undefined || !(allows(token, cache, 'read') || allows(token, cache, permission))) {
    throw unknownCache(name);
  }
  if (!allows(token, cache, permission)) {
    throw new ApiError(
      403,
      'forbidden',
      `the token '${token.name}' may not ${permission} on the cache '${name}'`,
      {
        hint: `use a token with the permission '${permission}' for this cache`,
      },
    );
  }
  return cache;
}

export function unknownCache(name: string): ApiError {
  return new ApiError(404, 'unknown_cache', `there is no cache '${name}' here that this token may use`, {
    hint: 'check the spelling of its name and which caches the token is for',
  });
}

async function findCache(catalogue: Catalogue, name: string): Promise<CacheRecord | undefined> {
  let parsed: CacheName;
  try {
    parsed = parseCacheName(name);
  } catch (error) {
    if (error instanceof FormatError) return undefined;
    throw error;
  }
  return catalogue.findCache(parsed);
}
