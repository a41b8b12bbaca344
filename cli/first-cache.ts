import { type CacheName, parseCacheName } from '../api/cache-name.ts';
import { generateSecretKey } from '../nix/keys.ts';
import { hashToken, newToken } from '../server/auth.ts';
import { openCatalogue } from '../server/origin.ts';
import { readClientState, writeClientState } from './state.ts';

export interface FirstCache {
  readonly name: CacheName;
  readonly publicKey: string;
  /** Only when it was made just now: it is shown once. */
  readonly newToken: string | undefined;
}

/** Sees to it that there is a public cache `main` and a token the client of this checkout pushes to it with. */
export async function ensureFirstCache(
  state: string,
  originState: string,
  originUrl: string,
): Promise<FirstCache> {
  const catalogue = openCatalogue(originState);
  try {
    const name = parseCacheName('main');
    const cache =
      (await catalogue.findCache(name)) ??
      (await catalogue.createCache({
        name,
        public: true,
        priority: 30,
        key: generateSecretKey(`${name}-1`),
      }));
    const [key] = await catalogue.signingKeys(cache.id);
    if (key === undefined) throw new Error(`the cache '${name}' has no signing key`);
    const publicKey = key.publicKey.text;
    const kept = readClientState(state);
    if (kept !== undefined && (await catalogue.findToken(hashToken(kept.token))) !== undefined) {
      if (kept.url !== originUrl) writeClientState(state, { url: originUrl, token: kept.token });
      return { name, publicKey, newToken: undefined };
    }
    const secret = newToken();
    await catalogue.createToken({
      name: 'first push token',
      user: 'local',
      hash: hashToken(secret),
      permissions: ['read', 'push'],
      caches: [name],
    });
    writeClientState(state, { url: originUrl, token: secret });
    return { name, publicKey, newToken: secret };
  } finally {
    await catalogue.close();
  }
}
