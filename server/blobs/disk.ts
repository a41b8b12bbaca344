import { mkdirSync } from 'node:fs';
import { type FileHandle, link, open, readdir, truncate, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import pLimit from 'p-limit';
import { ApiError } from '../../api/problem.ts';
import { FormatError } from '../../nix/errors.ts';
import { parseSha256Base32, type Sha256 } from '../../nix/hash.ts';
import type { BlobFile, BlobStore } from './blob-store.ts';

const BLOB_SUFFIX = '.nar.zst';
const SHARD = /^[0-9a-z]{2}$/;

/**
 * Blobs as files: `blobs/<last two digits>/<NarHash>.nar.zst`, staged ones in `staging/`, both below `directory`.
 * The last digits, since the first of a SHA-256 in base32 is always 0 or 1.
 */
export function openDiskBlobStore(directory: string): BlobStore {
  return new DiskBlobStore(directory);
}

class DiskBlobStore implements BlobStore {
  readonly #blobs: string;
  readonly #staging: string;
  readonly #shards = new Set<string>();

  constructor(directory: string) {
    this.#blobs = join(directory, 'blobs');
    this.#staging = join(directory, 'staging');
    mkdirSync(this.#blobs, { recursive: true, mode: 0o700 });
    mkdirSync(this.#staging, { recursive: true, mode: 0o700 });
  }

  async open(narHash: Sha256): Promise<BlobFile | undefined> {
    let file: FileHandle;
    try {
      file = await open(this.blobFile(narHash));
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
    return {
      read: async (into, position) => (await file.read(into, 0, into.length, position)).bytesRead,
      close: () => file.close(),
    };
  }

  async publish(files: readonly { staged: string; narHash: Sha256 }[]): Promise<Set<Sha256>> {
    const before = new Set<Sha256>();
    for (const { narHash } of files) this.#makeShard(narHash);
    const limit = pLimit(16);
    // The content is durable before its name, and the name before anybody is told.
    await limit.map(files, async ({ staged, narHash }) => {
      await syncFile(this.stagedFile(staged));
      try {
        await link(this.stagedFile(staged), this.blobFile(narHash));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw noSpace(error);
        before.add(narHash);
      }
    });
    const directories = new Set(files.map(({ narHash }) => this.#shard(narHash)));
    await limit.map([...directories], syncFile);
    await limit.map(files, ({ staged }) => this.discard(staged));
    return before;
  }

  async stage(staged: string, position: number, source: AsyncIterable<Buffer>): Promise<void> {
    try {
      const file = await openForWriting(this.stagedFile(staged));
      try {
        let at = position;
        for await (const chunk of source) {
          for (let done = 0; done < chunk.length; ) {
            const { bytesWritten } = await file.write(chunk, done, chunk.length - done, at);
            done += bytesWritten;
            at += bytesWritten;
          }
        }
      } finally {
        await file.close();
      }
    } catch (error) {
      throw noSpace(error);
    }
  }

  async truncate(staged: string, size: number): Promise<boolean> {
    try {
      await truncate(this.stagedFile(staged), size);
      return true;
    } catch (error) {
      if (isMissing(error)) return false;
      throw error;
    }
  }

  stagedFile(staged: string): string {
    return join(this.#staging, staged);
  }

  blobFile(narHash: Sha256): string {
    return join(this.#shard(narHash), narHash + BLOB_SUFFIX);
  }

  async discard(staged: string): Promise<void> {
    await unlinkIfThere(this.stagedFile(staged));
  }

  listStaged(): Promise<string[]> {
    return filesIn(this.#staging);
  }

  async *listBlobs(): AsyncIterable<Sha256[]> {
    for (const shard of await readdir(this.#blobs)) {
      // Such as `lost+found`, where this is a disk of its own.
      if (!SHARD.test(shard)) continue;
      const names = await filesIn(join(this.#blobs, shard));
      yield names.flatMap((name) => {
        try {
          return name.endsWith(BLOB_SUFFIX) ? [parseSha256Base32(name.slice(0, -BLOB_SUFFIX.length))] : [];
        } catch (error) {
          // A file somebody else put there; not ours to touch.
          if (error instanceof FormatError) return [];
          throw error;
        }
      });
    }
  }

  async delete(narHash: Sha256): Promise<void> {
    await unlinkIfThere(this.blobFile(narHash));
  }

  #shard(narHash: Sha256): string {
    return join(this.#blobs, narHash.slice(-2));
  }

  #makeShard(narHash: Sha256): void {
    const shard = this.#shard(narHash);
    if (this.#shards.has(shard)) return;
    mkdirSync(shard, { recursive: true, mode: 0o700 });
    this.#shards.add(shard);
  }
}

async function openForWriting(file: string): Promise<FileHandle> {
  try {
    return await open(file, 'r+');
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
  try {
    return await open(file, 'wx+', 0o600);
  } catch (error) {
    // Another part of the same upload came first.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return open(file, 'r+');
  }
}

async function filesIn(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => entry.name);
}

/** Forces a file, or the names in a directory, to disk. */
async function syncFile(path: string): Promise<void> {
  const file = await open(path);
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

async function unlinkIfThere(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}

/** A full disk is the one failure whose reason the client must learn. */
function noSpace(error: unknown): unknown {
  const code = (error as NodeJS.ErrnoException).code;
  if (code !== 'ENOSPC' && code !== 'EDQUOT') return error;
  return new ApiError(507, 'disk_full', "the origin's disk is full", {
    hint: 'free space in its state directory, then push again: what was sent so far is kept',
    cause: error,
  });
}
