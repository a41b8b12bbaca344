import type { ByteSource } from '../../api/send-bytes.ts';
import type { Sha256 } from '../../nix/hash.ts';

/** A blob that is being read. */
export interface BlobFile extends ByteSource {
  close(): Promise<void>;
}

/**
 * Holds the compressed NARs, one a NarHash, and beside them the staged files: what is on its way in and was not
 * verified yet. A blob is written once and never changes.
 */
export interface BlobStore {
  /** Opens a blob to be read, and closed; undefined where there is none. */
  open(narHash: Sha256): Promise<BlobFile | undefined>;
  /**
   * Makes verified staged files blobs, durably, all together; the staged files are gone afterwards.
   *
   * @returns those that were there before: they stay as they are
   */
  publish(files: readonly { staged: string; narHash: Sha256 }[]): Promise<Set<Sha256>>;

  /** Writes `source` into the staged file from byte `position` on, making the file where there is none. */
  stage(staged: string, position: number, source: AsyncIterable<Buffer>): Promise<void>;
  /** @returns whether there is such a file */
  truncate(staged: string, size: number): Promise<boolean>;
  /** Where a worker finds a staged file, to verify it. */
  stagedFile(staged: string): string;
  /** Where a worker finds a blob. */
  blobFile(narHash: Sha256): string;
  discard(staged: string): Promise<void>;

  /** Names of all staged files. */
  listStaged(): Promise<string[]>;
  /** All blobs, in lots that fit into memory. */
  listBlobs(): AsyncIterable<Sha256[]>;
  delete(narHash: Sha256): Promise<void>;
}
