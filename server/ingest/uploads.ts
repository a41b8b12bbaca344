import { createHash, randomUUID } from 'node:crypto';
import { ApiError } from '../../api/problem.ts';
import type { Upload } from '../../api/schemas.ts';
import { FormatError } from '../../nix/errors.ts';
import type { Sha256 } from '../../nix/hash.ts';
import type { PathInfo } from '../../nix/narinfo.ts';
import type { StorePath } from '../../nix/store-path.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { CacheRecord, Catalogue, PartRecord } from '../catalogue/catalogue.ts';

/** Bytes of every part but the last; a part lies at its number times this in the staged file. */
export const PART_BYTES = 8 << 20;
const MAX_PARTS = 65_536;

export async function openUpload(
  catalogue: Catalogue,
  cache: CacheRecord,
  path: StorePath,
  narHash: Sha256,
): Promise<Upload> {
  const wanted = { id: randomUUID(), cacheId: cache.id, path, narHash };
  const { upload, parts } = await catalogue.openUpload(wanted);
  return { id: upload.id, partSize: PART_BYTES, parts };
}

/**
 * Takes one part in.
 *
 * @param sha256 what it must have, lower-case hex
 * @throws ApiError 400 `bad_digest` or `bad_part`, 404 `no_such_upload`
 */
export async function receivePart(
  catalogue: Catalogue,
  blobs: BlobStore,
  cache: CacheRecord,
  id: string,
  number: number,
  sha256: string,
  body: AsyncIterable<Buffer>,
): Promise<void> {
  if ((await catalogue.findUpload(cache.id, id)) === undefined) throw noSuchUpload();
  if (number >= MAX_PARTS)
    throw new ApiError(413, 'upload_too_large', `an upload has at most ${MAX_PARTS} parts`);
  const hash = createHash('sha256');
  let size = 0;
  async function* counted(): AsyncGenerator<Buffer> {
    for await (const chunk of body) {
      size += chunk.length;
      if (size > PART_BYTES) throw new ApiError(400, 'bad_part', `a part has at most ${PART_BYTES} bytes`);
      hash.update(chunk);
      yield chunk;
    }
  }
  await blobs.stage(id, number * PART_BYTES, counted());
  if (size === 0) throw new ApiError(400, 'bad_part', 'the part is empty');
  if (hash.digest('hex') !== sha256) {
    throw new ApiError(400, 'bad_digest', 'the part does not have the digest it was sent with', {
      hint: 'send it again: it was damaged on the way',
    });
  }
  try {
    await catalogue.recordPart(id, { number, size, sha256 });
  } catch (error) {
    // Given up while the part came in, which made the file anew.
    if ((await catalogue.findUpload(cache.id, id)) === undefined) await blobs.discard(id);
    throw error;
  }
}

/**
 * The staged file of an upload whose parts are all there.
 *
 * @throws FormatError `no_such_upload`, `incomplete_upload`, for the one path that names it
 */
export async function finishedUpload(
  catalogue: Catalogue,
  blobs: BlobStore,
  cache: CacheRecord,
  id: string,
  info: PathInfo,
): Promise<string> {
  const found = await catalogue.findUpload(cache.id, id);
  if (found === undefined || found.upload.path !== info.path || found.upload.narHash !== info.narHash) {
    throw givenUp();
  }
  const size = wholeSize(found.parts);
  if (size === undefined) throw new FormatError('incomplete_upload', 'parts of its upload are missing');
  // An earlier attempt may have sent more parts.
  if (await blobs.truncate(id, size)) return id;
  await catalogue.dropUpload(id);
  throw givenUp();
}

function givenUp(): FormatError {
  return new FormatError('no_such_upload', 'there is no upload of it: it may have been given up meanwhile');
}

/** Gives an upload up. Its file goes first: on a full disk the record cannot be written before. */
export async function dropUpload(catalogue: Catalogue, blobs: BlobStore, id: string): Promise<void> {
  await blobs.discard(id);
  await catalogue.dropUpload(id);
}

/** Bytes of all parts together; undefined where they leave a gap. */
function wholeSize(parts: readonly PartRecord[]): number | undefined {
  const last = parts.at(-1);
  if (last === undefined) return undefined;
  const whole = parts.every(
    (part, i) => part.number === i && (part.size === PART_BYTES || i === parts.length - 1),
  );
  return whole ? last.number * PART_BYTES + last.size : undefined;
}

export function noSuchUpload(): ApiError {
  return new ApiError(404, 'no_such_upload', 'there is no such upload', {
    hint: 'it was finished or given up meanwhile; push again',
  });
}
