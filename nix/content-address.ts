import { createHash } from 'node:crypto';
import { base32Length, decodeBase32, encodeBase32 } from './base32.ts';
import { FormatError } from './errors.ts';
import type { PathInfo } from './narinfo.ts';
import { fullPath, namePart, parseStorePath, type StorePath } from './store-path.ts';

const DIGEST_SIZE = { md5: 16, sha1: 20, sha256: 32, sha512: 64 } as const;

export type HashAlgorithm = keyof typeof DIGEST_SIZE;

/** A narinfo's `CA`, taken apart. */
export interface ContentAddress {
  /**
   * What is hashed: the one file of a `text`, such as a derivation, or of a `flat` path; the whole `nar`;
   * a `git` tree object.
   */
  readonly method: 'text' | 'flat' | 'nar' | 'git';
  readonly algorithm: HashAlgorithm;
  readonly digest: Buffer;
}

/**
 * Reads `text:sha256:<digest>` and `fixed:[r:|git:]<algorithm>:<digest>`; digests in base32, hex or base64.
 *
 * @throws FormatError
 */
export function parseContentAddress(text: string): ContentAddress {
  const match = /^(?:(text):|fixed:(r:|git:)?)(md5|sha1|sha256|sha512):([0-9A-Za-z+/]+=*)$/.exec(text);
  const algorithm = match?.[3] as HashAlgorithm | undefined;
  const digest = algorithm && readDigest(match?.[4] ?? '', DIGEST_SIZE[algorithm]);
  if (!match || !algorithm || !digest || (match[1] && algorithm !== 'sha256')) {
    throw new FormatError('bad_content_address', `'${text.slice(0, 200)}' is not a content address`);
  }
  const method = match[1] ? 'text' : match[2] === 'r:' ? 'nar' : match[2] === 'git:' ? 'git' : 'flat';
  return { method, algorithm, digest };
}

/**
 * The store path that content gets in `info.storeDir` under the name of `info.path`.
 *
 * @throws FormatError `bad_content_address` for references that such an address cannot have
 */
export function contentAddressedPath(
  address: ContentAddress,
  info: Pick<PathInfo, 'storeDir' | 'path' | 'references'>,
): StorePath {
  const { method, algorithm, digest } = address;
  const others = info.references.filter((path) => path !== info.path);
  const self = others.length < info.references.length;
  const references = others.map((path) => `:${fullPath(info.storeDir, path)}`).join('');
  if (method === 'nar' && algorithm === 'sha256') {
    return storePathFor(`source${references}${self ? ':self' : ''}`, digest, info);
  }
  if (method === 'text' && !self) return storePathFor(`text${references}`, digest, info);
  if (info.references.length > 0) {
    throw new FormatError(
      'bad_content_address',
      `${info.path} cannot have references with its content address`,
    );
  }
  const prefix = { nar: 'r:', git: 'git:', flat: '', text: '' }[method];
  const inner = createHash('sha256').update(`fixed:out:${prefix}${algorithm}:${digest.toString('hex')}:`);
  return storePathFor('output:out', inner.digest(), info);
}

/**
 * How a content address bears out:
 * - `proven`: content and path belong together, so the path needs no signature;
 * - `unknown`: the path belongs to the address, but nobody computed the digest of the content (`git:`);
 * - `wrong-content`: the content has another digest;
 * - `wrong-path`: the address belongs to another path.
 */
export type ContentAddressVerdict = 'proven' | 'unknown' | 'wrong-content' | 'wrong-path';

/**
 * Checks `info.ca` against the path and against the digest that was computed of the content.
 *
 * @param contentHash the raw digest, as the NAR's verification gives it
 * @throws FormatError for an address that is malformed or missing
 */
export function checkContentAddress(
  info: Pick<PathInfo, 'storeDir' | 'path' | 'references' | 'ca'>,
  contentHash: Buffer | undefined,
): ContentAddressVerdict {
  const address = parseContentAddress(info.ca ?? '');
  if (contentAddressedPath(address, info) !== info.path) return 'wrong-path';
  if (contentHash === undefined) return 'unknown';
  return contentHash.equals(address.digest) ? 'proven' : 'wrong-content';
}

function storePathFor(
  type: string,
  inner: Buffer,
  { storeDir, path }: Pick<PathInfo, 'storeDir' | 'path'>,
): StorePath {
  const name = namePart(path);
  const full = createHash('sha256')
    .update(`${type}:sha256:${inner.toString('hex')}:${storeDir}:${name}`)
    .digest();
  const folded = Buffer.alloc(20);
  for (let i = 0; i < full.length; i++) folded[i % 20] = (folded[i % 20] as number) ^ (full[i] as number);
  return parseStorePath(`${encodeBase32(folded)}-${name}`);
}

function readDigest(text: string, size: number): Buffer | undefined {
  if (text.length === size * 2 && /^[0-9a-fA-F]+$/.test(text)) return Buffer.from(text, 'hex');
  if (text.length === base32Length(size)) return decodeBase32(text);
  const bytes = Buffer.from(text, 'base64');
  return bytes.length === size && bytes.toString('base64') === text ? bytes : undefined;
}
