import { readSync } from 'node:fs';
import { paddingOf } from './grammar.ts';

/** Bytes of a block where nothing else is asked for. */
export const NAR_BLOCK_SIZE = 2 << 20;

const ZEROS = Buffer.alloc(8);
const MAX_HEADER = 16 << 10;

/**
 * Fills blocks of one size. Small pieces gather in a header first, so that only {@link flush} has to
 * care about the end of a block; a file's contents are read straight into the block.
 */
export class BlockWriter {
  readonly #size: number;
  readonly #allocate: () => Buffer;
  readonly #header = Buffer.allocUnsafe(MAX_HEADER);
  #headerStart = 0;
  #headerEnd = 0;
  #block: Buffer | undefined;
  #used = 0;

  /** @param allocate gives at least `size` bytes */
  constructor(size: number, allocate: () => Buffer) {
    this.#size = size;
    this.#allocate = allocate;
  }

  /** Bytes the block has left. */
  get room(): number {
    return this.#size - this.#used;
  }

  /** Adds to the header, which takes 16 KiB between two calls of {@link flush}. */
  put(bytes: Buffer): void {
    this.#header.set(bytes, this.#headerEnd);
    this.#headerEnd += bytes.length;
  }

  /** Adds a size as the NAR writes it. */
  putSize(size: number): void {
    this.#header.writeUInt32LE(size % 0x1_0000_0000, this.#headerEnd);
    this.#header.writeUInt32LE(Math.floor(size / 0x1_0000_0000), this.#headerEnd + 4);
    this.#headerEnd += 8;
  }

  /** Adds what follows `size` bytes. */
  putPadding(size: number): void {
    this.put(ZEROS.subarray(0, paddingOf(size)));
  }

  putString(bytes: Buffer): void {
    this.putSize(bytes.length);
    this.put(bytes);
    this.putPadding(bytes.length);
  }

  /** Moves the header into the block. Where that is full first, false: after {@link take}, call it again. */
  flush(): boolean {
    const block = this.#current();
    const size = Math.min(this.#headerEnd - this.#headerStart, this.room);
    this.#header.copy(block, this.#used, this.#headerStart, this.#headerStart + size);
    this.#used += size;
    this.#headerStart += size;
    if (this.#headerStart < this.#headerEnd) return false;
    this.#headerStart = 0;
    this.#headerEnd = 0;
    return true;
  }

  /** Reads an open file into the room there is, after a flush; gives the number of bytes, 0 at the file's end. */
  read(file: number): number {
    const read = readSync(file, this.#current(), this.#used, this.room, null);
    this.#used += read;
    return read;
  }

  /** Gives the block away, as far as it is filled, and begins another. */
  take(): Buffer {
    const block = this.#current().subarray(0, this.#used);
    this.#block = undefined;
    this.#used = 0;
    return block;
  }

  #current(): Buffer {
    if (this.#block === undefined) {
      const block = this.#allocate();
      if (block.length < this.#size) throw new RangeError(`a block needs ${this.#size} bytes`);
      this.#block = block;
    }
    return this.#block;
  }
}
