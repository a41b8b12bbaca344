import { decodeBase32, encodeBase32 } from './base32.ts';
import type { Brand } from './brand.ts';
import { FormatError } from './errors.ts';

/** A SHA-256 as 52 base32 digits, without a prefix: the form that file names and URLs carry. */
export type Sha256 = Brand<string, 'Sha256'>;

/** The hash of 32 raw bytes. */
export function sha256FromBytes(digest: Uint8Array): Sha256 {
  if (digest.length !== 32) throw new FormatError('bad_hash', 'a SHA-256 has 32 bytes');
  return encodeBase32(digest) as Sha256;
}

/**
 * Reads every form Nix writes: `sha256:` before base32, hex or base64, or SRI `sha256-<base64>`.
 *
 * @throws FormatError for another algorithm or a malformed digest.
 */
export function parseSha256(text: string): Sha256 {
  if (!/^sha256[:-]/.test(text)) throw new FormatError('bad_hash', `'${text}' is not a SHA-256`);
  const digest = text.slice(7);
  if (text[6] === ':') {
    if (digest.length === 52) return parseSha256Base32(digest);
    if (/^[0-9a-fA-F]{64}$/.test(digest)) return sha256FromBytes(Buffer.from(digest, 'hex'));
  }
  if (/^[0-9A-Za-z+/]{43}=$/.test(digest)) return sha256FromBytes(Buffer.from(digest, 'base64'));
  throw new FormatError('bad_hash', `'${text}' is not a SHA-256`);
}

/** Reads the bare 52 digits. @throws FormatError */
export function parseSha256Base32(digits: string): Sha256 {
  if (digits.length !== 52) throw new FormatError('bad_hash', `'${digits}' is not a SHA-256`);
  decodeBase32(digits);
  return digits as Sha256;
}

/** `sha256:<base32>`, as narinfos and fingerprints write it. */
export function formatSha256(hash: Sha256): string {
  return `sha256:${hash}`;
}

/** The digest in lower-case hex: what the daemon and Nix's database speak. */
export function sha256ToHex(hash: Sha256): string {
  return decodeBase32(hash).toString('hex');
}
