import { randomBytes } from 'node:crypto';
import { zstdDecompressSync } from 'node:zlib';
import type { PushEvent } from '../../agent/push/events.ts';
import { type PushOptions, type PushSummary, push } from '../../agent/push/push.ts';
import { writeNar } from '../../nix/nar/write.ts';
import { fullPath, type StorePath } from '../../nix/store-path.ts';
import { FakeOrigin, hashOf, QUICK_RETRY } from './fake-origin.ts';
import { FakeStore } from './fake-store.ts';

interface Teardown {
  teardown(fn: () => unknown): void;
}

/** A store, an origin, and a push from the one to the other. */
export class PushBench {
  readonly store: FakeStore;
  readonly origin: FakeOrigin;
  /** Of all pushes. */
  readonly events: PushEvent[] = [];

  private constructor(store: FakeStore, origin: FakeOrigin) {
    this.store = store;
    this.origin = origin;
  }

  static async open(t: Teardown): Promise<PushBench> {
    const origin = await FakeOrigin.start();
    t.teardown(() => origin.close());
    return new PushBench(new FakeStore(t), origin);
  }

  push(roots: readonly StorePath[], options: Partial<PushOptions> = {}): Promise<PushSummary> {
    return push({
      origin: this.origin.client(),
      cache: this.origin.cache,
      store: this.store,
      roots,
      jobs: 3,
      level: 1,
      retry: QUICK_RETRY,
      onProgress: (event) => this.events.push(event),
      ...options,
    });
  }

  /** Whether the origin has the path, with its own NAR. */
  has(path: StorePath): boolean {
    const file = this.origin.entries.get(hashOf(path))?.file;
    if (file === undefined) return false;
    const nar = Buffer.concat([...writeNar(fullPath(this.store.storeDir, path))]);
    return decompressFrames(file).equals(nar);
  }

  /** `METHOD path` of the requests so far, with `*` for the ids of uploads. */
  requests(): string[] {
    return this.origin.requests.map((line) => line.replace(/uploads\/[^/]+/, 'uploads/*'));
  }
}

/** Bytes that no compressor makes smaller. */
export function noise(size: number): Buffer {
  return randomBytes(size);
}

/** A row of zstd frames, each of which names its size and is no larger than a NAR's block. */
function decompressFrames(file: Buffer): Buffer {
  const blocks: Buffer[] = [];
  const magic = Buffer.from('28b52ffd', 'hex');
  for (let from = 0; from < file.length; ) {
    // The magic number may be in the data by chance: a frame ends where it decompresses.
    for (let end = from + 4; ; ) {
      const next = file.indexOf(magic, end);
      end = next < 0 ? file.length : next;
      try {
        blocks.push(zstdDecompressSync(file.subarray(from, end)));
        from = end;
        break;
      } catch (error) {
        if (next < 0) throw error;
        end += 4;
      }
    }
  }
  return Buffer.concat(blocks);
}
