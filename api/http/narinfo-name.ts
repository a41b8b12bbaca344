import { parseStorePathHash, type StorePathHash } from '../../nix/store-path.ts';

/** The hash part that `<hash>.narinfo` asks for; undefined where the name is none of a narinfo. */
export function narInfoHash(file: string): StorePathHash | undefined {
  if (!file.endsWith('.narinfo')) return undefined;
  try {
    return parseStorePathHash(file.slice(0, -'.narinfo'.length));
  } catch {
    return undefined;
  }
}
