import type { Brand } from '../nix/brand.ts';
import { FormatError } from '../nix/errors.ts';

/** The name of a cache: one DNS label, since a cache also has the address `http://<cache>.<domain>`. */
export type CacheName = Brand<string, 'CacheName'>;

export const CACHE_NAME_PATTERN = '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$';

const PATTERN = new RegExp(CACHE_NAME_PATTERN);

/** First segments of the origin's own paths. */
const RESERVED = new Set(['api', 'healthz', 'readyz', 'metrics', 'docs', 'static', 'www', 'nix-cache-info']);

/** @throws FormatError with the rule that was broken. */
export function parseCacheName(text: string): CacheName {
  if (!PATTERN.test(text)) {
    throw new FormatError('bad_cache_name', `'${text}' is not a cache name`, {
      hint: 'use 1 to 63 lower-case letters, digits and dashes, with no dash at either end',
    });
  }
  if (RESERVED.has(text)) {
    throw new FormatError('bad_cache_name', `'${text}' is kept for the service itself`, {
      hint: 'choose another name for the cache',
    });
  }
  return text as CacheName;
}
