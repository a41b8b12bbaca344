import { createHash, randomBytes } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../api/problem.ts';
import type { Permission } from '../api/schemas.ts';
import type { CacheRecord, Catalogue, TokenRecord } from './catalogue/catalogue.ts';

/** A new secret; the prefix lets scanners for leaked secrets know it. */
export function newToken(): string {
  return `bcache_${randomBytes(32).toString('base64url')}`;
}

/** What the catalogue keeps of a secret. It has 256 random bits, so one round of SHA-256 hides it. */
export function hashToken(secret: string): Buffer {
  return createHash('sha256').update(secret).digest();
}

/**
 * The token a request carries: as Bearer, or as the password of Basic, which is how Nix sends its netrc.
 *
 * @returns undefined where there is none, or one that is not known or has expired: `carried` tells them apart
 */
export async function authenticate(
  catalogue: Catalogue,
  request: FastifyRequest,
): Promise<TokenRecord | undefined> {
  const secret = carriedSecret(request);
  if (secret === undefined) return undefined;
  // Found by its hash: how long that takes says nothing about the secret.
  const token = await catalogue.findToken(hashToken(secret));
  return token?.expiresAt !== undefined && token.expiresAt.getTime() <= Date.now() ? undefined : token;
}

function carriedSecret(request: FastifyRequest): string | undefined {
  const [scheme, value] = (request.headers.authorization ?? '').split(' ', 2);
  if (value === undefined) return undefined;
  if (/^bearer$/i.test(scheme as string)) return value;
  if (!/^basic$/i.test(scheme as string)) return undefined;
  const login = Buffer.from(value, 'base64').toString();
  return login.slice(login.indexOf(':') + 1);
}

/** Whether `token` allows `permission` on `cache`. */
export function allows(token: TokenRecord | undefined, cache: CacheRecord, permission: Permission): boolean {
  if (permission === 'read' && cache.public) return true;
  if (token === undefined || !token.permissions.includes(permission)) return false;
  return token.caches.includes('*') || token.caches.includes(cache.name);
}

/** @throws ApiError 401 unless the request carries a token that is valid */
export async function requireToken(catalogue: Catalogue, request: FastifyRequest): Promise<TokenRecord> {
  const token = await authenticate(catalogue, request);
  if (token !== undefined) return token;
  if (request.headers.authorization === undefined) {
    throw new ApiError(401, 'no_token', 'this needs a token, and none was sent', {
      hint: 'set BCACHE_AUTH_TOKEN to a token with the permission to do this',
    });
  }
  throw new ApiError(401, 'bad_token', 'the token is not valid: it is unknown, revoked or expired', {
    hint: 'check BCACHE_AUTH_TOKEN, or ask for a new token',
  });
}
