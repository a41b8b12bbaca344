import { COMPRESSIONS, type Compression } from './compression/names.ts';
import { FormatError } from './errors.ts';
import { formatSha256, parseSha256, type Sha256 } from './hash.ts';
import { parseSignature, type Signature } from './keys.ts';
import { fullPath, parseFullPath, parseStorePath, type StoreDir, type StorePath } from './store-path.ts';

/** What a store path is, as its signature covers it: the part of a narinfo that is the same in every cache. */
export interface PathInfo {
  readonly storeDir: StoreDir;
  readonly path: StorePath;
  readonly narHash: Sha256;
  /** Bytes of the uncompressed NAR. */
  readonly narSize: number;
  /** Sorted bytewise, without duplicates; the path itself where it refers to itself. */
  readonly references: readonly StorePath[];
  readonly deriver?: StorePath | undefined;
  readonly signatures: readonly Signature[];
  /** `text:sha256:<base32>` or `fixed:[r:|git:]<algo>:<base32>`. */
  readonly ca?: string | undefined;
}

/** A `<hash>.narinfo` document: a {@link PathInfo} and where one cache keeps its NAR. */
export interface NarInfo extends PathInfo {
  /** Relative to the cache's address, or absolute. */
  readonly url: string;
  readonly compression: Compression;
  readonly fileHash?: Sha256 | undefined;
  /** Bytes of the file behind `url`. */
  readonly fileSize?: number | undefined;
}

/** Larger ones are refused unread; the largest known closures list a few thousand references. */
export const MAX_NARINFO_BYTES = 4 << 20;

export const NARINFO_TYPE = 'text/x-nix-narinfo';

/** The bytes an Ed25519 signature is made over; names no URL, compression, deriver or CA. */
export function fingerprint(info: PathInfo): string {
  const references = info.references.map((path) => fullPath(info.storeDir, path)).join(',');
  return `1;${fullPath(info.storeDir, info.path)};${formatSha256(info.narHash)};${info.narSize};${references}`;
}

/** References as Nix orders them. */
export function sortReferences(references: Iterable<StorePath>): StorePath[] {
  // The alphabet is ASCII, so code units compare as bytes do.
  return [...new Set(references)].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
}

export function renderNarInfo(info: NarInfo): string {
  const lines = [
    `StorePath: ${fullPath(info.storeDir, info.path)}`,
    `URL: ${info.url}`,
    `Compression: ${info.compression}`,
  ];
  if (info.fileHash !== undefined) lines.push(`FileHash: ${formatSha256(info.fileHash)}`);
  if (info.fileSize !== undefined) lines.push(`FileSize: ${info.fileSize}`);
  lines.push(`NarHash: ${formatSha256(info.narHash)}`, `NarSize: ${info.narSize}`);
  // Nix reads a value from two characters behind the colon: an empty list keeps its trailing space.
  lines.push(`References: ${info.references.join(' ')}`);
  if (info.deriver !== undefined) lines.push(`Deriver: ${info.deriver}`);
  for (const signature of info.signatures) lines.push(`Sig: ${signature}`);
  if (info.ca !== undefined) lines.push(`CA: ${info.ca}`);
  return `${lines.join('\n')}\n`;
}

/**
 * Reads a narinfo at least as strictly as Nix does.
 *
 * @throws FormatError naming the field that is wrong.
 */
export function parseNarInfo(text: string): NarInfo {
  if (!text.endsWith('\n')) throw corrupt('it does not end with a newline');
  const fields = new Map<string, string>();
  const signatures: Signature[] = [];
  for (const line of text.slice(0, -1).split('\n')) {
    const colon = line.indexOf(': ');
    if (colon <= 0 || line.includes('\r'))
      throw corrupt(`'${line.slice(0, 60)}' is not a 'Name: value' line`);
    const name = line.slice(0, colon);
    const value = line.slice(colon + 2);
    if (name === 'Sig') signatures.push(parseSignature(value));
    else if (fields.has(name)) throw corrupt(`${name} is given twice`);
    else fields.set(name, value);
  }
  const required = (name: string): string => {
    const value = fields.get(name);
    if (!value) throw corrupt(`${name} is missing`);
    return value;
  };
  const size = (name: string): number => {
    const value = required(name);
    const number = Number(value);
    if (!/^[0-9]+$/.test(value) || !Number.isSafeInteger(number) || number === 0) {
      throw corrupt(`${name} '${value}' is not a size`);
    }
    return number;
  };
  const { storeDir, path } = parseFullPath(required('StorePath'));
  const compression = fields.get('Compression') || 'bzip2';
  if (!isCompression(compression)) throw corrupt(`Compression '${compression}' is not known`);
  const references = fields.get('References');
  const deriver = fields.get('Deriver');
  return {
    storeDir,
    path,
    url: required('URL'),
    compression,
    fileHash: fields.has('FileHash') ? parseSha256(required('FileHash')) : undefined,
    fileSize: fields.has('FileSize') ? size('FileSize') : undefined,
    narHash: parseSha256(required('NarHash')),
    narSize: size('NarSize'),
    references: sortReferences((references ? references.split(' ') : []).map(parseStorePath)),
    deriver: deriver === undefined || deriver === 'unknown-deriver' ? undefined : parseStorePath(deriver),
    signatures,
    ca: fields.get('CA') || undefined,
  };
}

function isCompression(text: string): text is Compression {
  return (COMPRESSIONS as readonly string[]).includes(text);
}

function corrupt(why: string): FormatError {
  return new FormatError('bad_narinfo', `the narinfo is corrupt: ${why}`);
}
