import { randomUUID } from 'node:crypto';
import pLimit from 'p-limit';
import type { CommitItem } from '../../api/commit-decode.ts';
import type { CommitEntry, CommitResult } from '../../api/schemas.ts';
import { checkContentAddress, parseContentAddress } from '../../nix/content-address.ts';
import { type BcacheError, FormatError } from '../../nix/errors.ts';
import { formatSha256, parseSha256, type Sha256 } from '../../nix/hash.ts';
import { parseSignature, sign, signatureKeyName } from '../../nix/keys.ts';
import { fingerprint, type PathInfo, renderNarInfo, sortReferences } from '../../nix/narinfo.ts';
import { fullPath, hashPart, parseFullPath, parseStorePath } from '../../nix/store-path.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { BlobRecord, CacheRecord, Catalogue, PublishResult } from '../catalogue/catalogue.ts';
import { dropUpload, finishedUpload } from './uploads.ts';
import type { Verifier } from './verifier.ts';
import type { FileDigest } from './verify-worker.ts';

/** A path whose NAR has arrived; `verified` never rejects, so that it may be awaited late. */
interface Received {
  readonly info: PathInfo;
  readonly staged: string;
  readonly upload: string | undefined;
  readonly verified: Promise<FileDigest | FormatError>;
}

/** What came in with one commit, in its order; answers that are certain already stand for their path. */
export type Receipt = readonly (Received | CommitResult)[];

/** The one way into a cache: verify, make durable, sign, publish. */
export class Ingest {
  readonly #catalogue: Catalogue;
  readonly #blobs: BlobStore;
  readonly #verifier: Verifier;
  /** One at a time: between its file and its record nobody else may take a blob for unused. */
  readonly #publishing = pLimit(1);

  constructor(catalogue: Catalogue, blobs: BlobStore, verifier: Verifier) {
    this.#catalogue = catalogue;
    this.#blobs = blobs;
    this.#verifier = verifier;
  }

  /**
   * Takes in the whole body of a commit; nothing of it can be seen yet. NARs are verified meanwhile.
   *
   * @throws ApiError where the body is malformed or breaks off, or the disk is full: nothing is left of it then,
   *   but for the uploads it names
   */
  async receive(cache: CacheRecord, items: AsyncIterable<CommitItem>): Promise<Receipt> {
    const receipt: (Received | CommitResult)[] = [];
    try {
      for await (const item of items) {
        try {
          receipt.push(await this.#receiveOne(cache, item));
        } catch (error) {
          if (!(error instanceof FormatError)) throw error;
          receipt.push(refused(item.entry.path, error));
        }
      }
      return receipt;
    } catch (error) {
      // Finished uploads stay: they are whole, and a push that is tried again goes on from them.
      await this.#forget(receipt.filter((item) => 'result' in item || item.upload === undefined));
      throw error;
    }
  }

  /** Publishes what was verified, in one transaction. */
  async publish(cache: CacheRecord, receipt: Receipt): Promise<CommitResult[]> {
    try {
      const results = new Map<Received, CommitResult>();
      const ready: { received: Received; blob: BlobRecord }[] = [];
      for (const received of receipt) {
        if ('result' in received) continue;
        const digest = await received.verified;
        const problem = digest instanceof FormatError ? digest : disagreement(received.info, digest);
        if (problem === undefined) ready.push({ received, blob: digest as FileDigest });
        else results.set(received, refused(fullPathOf(received.info), problem));
      }
      const published = await this.#publishing(() => this.#publishReady(cache, ready));
      ready.forEach(({ received }, i) => {
        results.set(received, resultOf(received.info, published[i] as PublishResult));
      });
      return receipt.map((item) => ('result' in item ? item : (results.get(item) as CommitResult)));
    } finally {
      await this.#forget(receipt);
    }
  }

  async #publishReady(
    cache: CacheRecord,
    ready: readonly { received: Received; blob: BlobRecord }[],
  ): Promise<PublishResult[]> {
    const blobs = await this.#publishBlobs(ready);
    const keys = await this.#catalogue.signingKeys(cache.id);
    const entries = ready.map(({ received: { info } }) => {
      const blob = blobs.get(info.narHash) as BlobRecord;
      const text = fingerprint(info);
      const names = new Set(keys.map((key) => key.name));
      const signatures = [
        ...keys.map((key) => sign(key, text)),
        ...info.signatures.filter((signature) => !names.has(signatureKeyName(signature))),
      ];
      const narinfo = renderNarInfo({
        ...info,
        signatures,
        url: `nar/${blob.narHash}.nar.zst`,
        compression: 'zstd',
        fileHash: blob.fileHash,
        fileSize: blob.fileSize,
      });
      return { info, blob, narinfo };
    });
    let published: PublishResult[];
    try {
      published = await this.#catalogue.publish(cache.id, entries);
    } catch (error) {
      await this.#dropUnused([...blobs.keys()]);
      throw error;
    }
    await this.#dropUnused(published.flatMap((answer, i) => unusedBlob(answer, entries[i]?.info.narHash)));
    return published;
  }

  async #receiveOne(cache: CacheRecord, { entry, nar }: CommitItem): Promise<Received | CommitResult> {
    const info = parseEntry(entry);
    const kept = (await this.#catalogue.present(cache.id, [hashPart(info.path)])).get(hashPart(info.path));
    if (kept !== undefined) {
      if (entry.upload !== undefined) await this.#dropUpload(cache, entry.upload);
      return presentResult(info, kept);
    }
    if (cache.storeDir !== undefined && cache.storeDir !== info.storeDir) {
      throw otherStoreDir(info, cache.storeDir);
    }
    let staged: string;
    if (nar === undefined) {
      staged = await finishedUpload(this.#catalogue, this.#blobs, cache, entry.upload as string, info);
    } else {
      staged = randomUUID();
      try {
        await this.#blobs.stage(staged, 0, nar);
      } catch (error) {
        await this.#blobs.discard(staged);
        throw error;
      }
    }
    const verified = this.#verifier
      .verify({
        file: this.#blobs.stagedFile(staged),
        maxNarSize: info.narSize,
        contentAddress: info.ca,
        selfReference: info.references.includes(info.path) ? hashPart(info.path) : undefined,
      })
      .catch((error: unknown) =>
        error instanceof FormatError
          ? error
          : new FormatError('cannot_verify', `the origin could not read the NAR back`, { cause: error }),
      );
    return { info, staged, upload: entry.upload, verified };
  }

  /** Makes the verified files blobs; each NarHash then has its one record, whoever sent it first. */
  async #publishBlobs(
    ready: readonly { received: Received; blob: BlobRecord }[],
  ): Promise<Map<Sha256, BlobRecord>> {
    const blobs = new Map<Sha256, BlobRecord>();
    const files: { staged: string; narHash: Sha256 }[] = [];
    for (const { received, blob } of ready) {
      if (blobs.has(blob.narHash)) continue;
      const known = await this.#catalogue.blob(blob.narHash);
      blobs.set(blob.narHash, known ?? blob);
      if (known === undefined) files.push({ staged: received.staged, narHash: blob.narHash });
    }
    for (const narHash of await this.#blobs.publish(files)) {
      // Another commit made it a moment ago: its file may be compressed differently.
      blobs.set(narHash, await this.#verifier.verify({ file: this.#blobs.blobFile(narHash) }));
    }
    return blobs;
  }

  /** Blobs that were made for entries that then were not published. */
  async #dropUnused(hashes: readonly Sha256[]): Promise<void> {
    const known = await this.#catalogue.knownBlobs(hashes);
    for (const narHash of hashes) if (!known.has(narHash)) await this.#blobs.delete(narHash);
  }

  async #forget(receipt: Receipt): Promise<void> {
    for (const received of receipt) {
      if ('result' in received) continue;
      // A worker must not find its file gone.
      await received.verified;
      await this.#blobs.discard(received.staged);
      if (received.upload !== undefined) await this.#catalogue.dropUpload(received.upload);
    }
  }

  async #dropUpload(cache: CacheRecord, id: string): Promise<void> {
    if ((await this.#catalogue.findUpload(cache.id, id)) === undefined) return;
    await dropUpload(this.#catalogue, this.#blobs, id);
  }
}

/** @throws FormatError */
function parseEntry(entry: CommitEntry): PathInfo {
  const { storeDir, path } = parseFullPath(entry.path);
  if (entry.ca !== undefined) parseContentAddress(entry.ca);
  return {
    storeDir,
    path,
    narHash: parseSha256(entry.narHash),
    narSize: entry.narSize,
    references: sortReferences(entry.references.map(parseStorePath)),
    deriver: entry.deriver === undefined ? undefined : parseStorePath(entry.deriver),
    signatures: entry.signatures.map(parseSignature),
    ca: entry.ca,
  };
}

/** Where the bytes are not what the entry says. */
function disagreement(info: PathInfo, digest: FileDigest): FormatError | undefined {
  if (digest.narSize !== info.narSize) {
    return new FormatError(
      'nar_size_mismatch',
      `its NAR has ${digest.narSize} bytes, but ${info.narSize} were announced`,
    );
  }
  if (digest.narHash !== info.narHash) {
    return new FormatError(
      'nar_hash_mismatch',
      `its NAR has the hash ${formatSha256(digest.narHash)}, but ${formatSha256(info.narHash)} was announced`,
    );
  }
  if (info.ca === undefined) return undefined;
  try {
    const verdict = checkContentAddress(info, digest.contentHash);
    if (verdict === 'proven' || verdict === 'unknown') return undefined;
    return new FormatError('bad_content_address', `it is not what its content address ${info.ca} stands for`);
  } catch (error) {
    if (error instanceof FormatError) return error;
    throw error;
  }
}

function unusedBlob(answer: PublishResult, narHash: Sha256 | undefined): Sha256[] {
  return answer.result === 'published' || narHash === undefined ? [] : [narHash];
}

function resultOf(info: PathInfo, answer: PublishResult): CommitResult {
  switch (answer.result) {
    case 'published':
      return { path: fullPathOf(info), result: 'published' };
    case 'present':
      return presentResult(info, answer.narHash);
    case 'missing_reference':
      return refused(
        fullPathOf(info),
        new FormatError(
          'missing_reference',
          `it refers to ${fullPath(info.storeDir, answer.reference)}, which is not in this cache`,
        ),
      );
    case 'other_store_dir':
      return refused(fullPathOf(info), otherStoreDir(info, answer.storeDir));
  }
}

function presentResult(info: PathInfo, kept: Sha256): CommitResult {
  const path = fullPathOf(info);
  if (kept === info.narHash) return { path, result: 'present' };
  return { path, result: 'present', keptNarHash: formatSha256(kept) };
}

function refused(path: string, problem: BcacheError): CommitResult {
  return { path, result: 'refused', code: problem.code, message: problem.message };
}

function otherStoreDir(info: PathInfo, storeDir: string): FormatError {
  return new FormatError(
    'other_store_dir',
    `it is of the store ${info.storeDir}, but this cache holds paths of ${storeDir}`,
  );
}

function fullPathOf(info: PathInfo): string {
  return fullPath(info.storeDir, info.path);
}
