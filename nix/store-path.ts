import type { Brand } from './brand.ts';
import { FormatError } from './errors.ts';

/** An absolute directory without a trailing slash, `/nix/store` almost everywhere. */
export type StoreDir = Brand<string, 'StoreDir'>;

/** The 32 base32 digits a store path begins with; a cache finds its entries by them. */
export type StorePathHash = Brand<string, 'StorePathHash'>;

/**
 * A store path inside its store directory: `<hash>-<name>`, no slash.
 * Join it with its directory by {@link fullPath} where a program wants the whole path.
 */
export type StorePath = Brand<string, 'StorePath'>;

export const DEFAULT_STORE_DIR = '/nix/store' as StoreDir;

const BASENAME = /^[0-9a-df-np-sv-z]{32}-[0-9A-Za-z+\-._?=]{1,211}$/;
const HASH = /^[0-9a-df-np-sv-z]{32}$/;

/** @throws FormatError unless `text` is `<hash>-<name>`. */
export function parseStorePath(text: string): StorePath {
  // Names `.` and `..`, alone or before a dash, are refused by current Nix: they read like directories.
  if (!BASENAME.test(text) || /^\.\.?(-|$)/.test(text.slice(33))) {
    throw new FormatError('bad_store_path', `'${text}' is not the name of a store path`);
  }
  return text as StorePath;
}

/** @throws FormatError unless `text` is the hash part of a store path. */
export function parseStorePathHash(text: string): StorePathHash {
  if (!HASH.test(text)) {
    throw new FormatError('bad_store_path', `'${text}' is not the hash part of a store path`);
  }
  return text as StorePathHash;
}

/** @throws FormatError unless `text` is an absolute, normal directory. */
export function parseStoreDir(text: string): StoreDir {
  if (!/^(\/[^/\0\n\r,; ]+)+$/.test(text) || /\/\.\.?(\/|$)/.test(text) || text.length > 1024) {
    throw new FormatError('bad_store_dir', `'${text}' is not a store directory`);
  }
  return text as StoreDir;
}

/**
 * Splits `/nix/store/<hash>-<name>`.
 *
 * @throws FormatError also for anything below the store path.
 */
export function parseFullPath(text: string): { storeDir: StoreDir; path: StorePath } {
  const slash = text.lastIndexOf('/');
  if (slash <= 0) throw new FormatError('bad_store_path', `'${text}' is not a store path`);
  return { storeDir: parseStoreDir(text.slice(0, slash)), path: parseStorePath(text.slice(slash + 1)) };
}

export function fullPath(storeDir: StoreDir, path: StorePath): string {
  return `${storeDir}/${path}`;
}

export function hashPart(path: StorePath): StorePathHash {
  return path.slice(0, 32) as StorePathHash;
}

export function namePart(path: StorePath): string {
  return path.slice(33);
}
