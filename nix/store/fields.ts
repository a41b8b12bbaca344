import { FormatError, StoreError } from '../errors.ts';
import { parseSha256, type Sha256 } from '../hash.ts';
import { parseSignature, type Signature } from '../keys.ts';
import { parseStorePath, type StoreDir, type StorePath } from '../store-path.ts';

/** The store path of a full path, as the database and the daemon write it. @throws FormatError */
export function parseIn(storeDir: StoreDir, text: string): StorePath {
  if (text[storeDir.length] !== '/' || !text.startsWith(storeDir)) {
    throw new FormatError('bad_store_path', `'${text}' is not in ${storeDir}`);
  }
  return parseStorePath(text.slice(storeDir.length + 1));
}

/** A deriver: Nix itself may leave it out or unknown. */
export function parseDeriver(storeDir: StoreDir, text: string | null): StorePath | undefined {
  return text === null || text === '' || text === 'unknown-deriver' ? undefined : parseIn(storeDir, text);
}

/** A NarHash, with or without `sha256:` before its digits. @throws FormatError */
export function parseNarHash(text: string): Sha256 {
  return parseSha256(/^sha256[:-]/.test(text) ? text : `sha256:${text}`);
}

/** Those that are well-formed: the local store takes any text as a signature, a narinfo does not. */
export function parseSignatures(texts: readonly string[]): Signature[] {
  return texts.flatMap((text) => {
    if (text === '') return [];
    try {
      return [parseSignature(text)];
    } catch {
      return [];
    }
  });
}

/** Runs `read`; what it finds malformed becomes a StoreError `store_corrupt`. */
export function reading<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    throw new StoreError('store_corrupt', `${what} holds something malformed: ${error.message}`, {
      cause: error,
    });
  }
}
