import {
  check,
  LZMA_BUF_ERROR,
  LZMA_FINISH,
  LZMA_MEMLIMIT_ERROR,
  LZMA_OK,
  LZMA_RUN,
  LZMA_STREAM_END,
  type NativeLZMA,
  Unxz,
  Xz,
} from 'node-liblzma';
import { CodecStream } from './codec-stream.ts';
import { beyondLimit, corrupt, truncated } from './errors.ts';
import { CHUNK_SIZE } from './limits.ts';

// `xz -9` needs 65 MiB to unpack; files made with larger dictionaries do not occur in caches.
const MEMORY_LIMIT = 128 << 20;

/**
 * Runs liblzma's coder itself rather than node-liblzma's stream around it, which ignores a reader that
 * is behind: a few kilobytes of input can make gigabytes of output.
 */
class XzStream extends CodecStream {
  readonly #native: NativeLZMA;
  #output = Buffer.allocUnsafe(CHUNK_SIZE);
  #used = 0;
  #busy = false;

  constructor(coder: Xz | Unxz) {
    super();
    // Where the package keeps the coder; its types leave that out.
    this.#native = (coder as unknown as { lzma: NativeLZMA }).lzma;
  }

  protected override async consume(chunk: Buffer): Promise<void> {
    let left = chunk.length;
    while (left > 0 && !this.destroyed) left = (await this.#step(LZMA_RUN, chunk, left)).left;
  }

  protected override async finish(): Promise<void> {
    const nothing = Buffer.alloc(0);
    while (!this.destroyed && !(await this.#step(LZMA_FINISH, nothing, 0)).ended);
  }

  /** One turn of the coder over the last `left` bytes of `input`, and what it made to the reader. */
  async #step(action: number, input: Buffer, left: number): Promise<{ left: number; ended: boolean }> {
    this.#busy = true;
    const [status, leftAfter, room] = await this.#code(action, input, left);
    this.#busy = false;
    if (this.destroyed) {
      this.#native.close();
      return { left: 0, ended: true };
    }
    const end = this.#output.length - room;
    if (end > this.#used) {
      const made = this.#output.subarray(this.#used, end);
      this.#used = end;
      if (room === 0) {
        this.#output = Buffer.allocUnsafe(CHUNK_SIZE);
        this.#used = 0;
      }
      await this.deliver(made);
    }
    if (status === LZMA_STREAM_END) return { left: leftAfter, ended: true };
    if (status === LZMA_OK) return { left: leftAfter, ended: false };
    if (status === LZMA_BUF_ERROR) throw truncated('xz');
    if (status === LZMA_MEMLIMIT_ERROR) throw beyondLimit('xz', 'a dictionary of more than 100 MiB');
    throw corrupt('xz', new Error(`liblzma says ${status}`));
  }

  // The binding lets go of its buffers only after its callback, and may be called again or closed only
  // from then on: hence a promise, whose continuation runs later.
  #code(action: number, input: Buffer, left: number): Promise<[number, number, number]> {
    const offset = input.length - left;
    return new Promise((resolve) => {
      this.#native.code(action, input, offset, left, this.#output, this.#used, (status, leftAfter, room) => {
        resolve([status, leftAfter, room]);
        return false;
      });
    });
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    if (!this.#busy) this.#native.close();
    super._destroy(error, callback);
  }
}

/** Reads `.xz`, also several streams one after another. */
export function createXzDecompressor(): CodecStream {
  return new XzStream(new Unxz({ memlimit: MEMORY_LIMIT }));
}

/** @param level 0 to 9 */
export function createXzCompressor(level: number): CodecStream {
  return new XzStream(new Xz({ preset: level, check: check.CRC64 }));
}
