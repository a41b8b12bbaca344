import { setImmediate as nextTurn } from 'node:timers/promises';
import { BitReader, OutOfInput } from './bzip2-bits.ts';
import { type Block, blockOutput, readBlock } from './bzip2-block.ts';
import { CodecStream } from './codec-stream.ts';
import { corrupt, trailing, truncated } from './errors.ts';

const BLOCK_MAGIC = [0x314159, 0x265359] as const;
const END_MAGIC = [0x177245, 0x385090] as const;

// A block is unpacked from memory: the largest one of 900 kB hardly ever needs more than this, and
// whatever needs more than the limit is not a block.
const WANTED = 920_000;
const LIMIT = 4 << 20;

/**
 * Reads `.bz2`, also several streams one after another.
 *
 * Old caches hold some, nothing writes it any more. It runs on the calling thread, a block of at most
 * 900 kB at a time, at some 20 to 40 MB/s.
 */
export class Bzip2Decompressor extends CodecStream {
  #pending: Buffer[] = [];
  #pendingSize = 0;
  #wanted = WANTED;
  /** Bits of the first pending byte that earlier blocks have used. */
  #usedBits = 0;
  /** 100 kB units of the stream that is being read; 0 between streams. */
  #level = 0;
  #streamCrc = 0;
  #streams = 0;
  #scratch = new Uint32Array(0);

  protected override async consume(chunk: Buffer): Promise<void> {
    this.#pending.push(chunk);
    this.#pendingSize += chunk.length;
    while (this.#pendingSize >= this.#wanted && (await this.#advance()));
  }

  protected override async finish(): Promise<void> {
    while (this.#pendingSize > 0) if (!(await this.#advance())) throw truncated('bzip2');
    if (this.#level !== 0 || this.#streams === 0) throw truncated('bzip2');
  }

  /** Reads one stream header, block or stream end; false where that takes more input. */
  async #advance(): Promise<boolean> {
    const input = this.#pending.length === 1 ? (this.#pending[0] as Buffer) : Buffer.concat(this.#pending);
    const bits = new BitReader(input, this.#usedBits);
    let block: Block | undefined;
    try {
      if (this.#level === 0) this.#readHeader(bits);
      else block = this.#readBlockOrEnd(bits);
    } catch (error) {
      if (!(error instanceof OutOfInput)) throw error;
      if (input.length > LIMIT) throw corrupt('bzip2');
      this.#pending = [input];
      this.#wanted = Math.max(this.#wanted, input.length * 2);
      return false;
    }
    const { byte, bit } = bits.position();
    this.#usedBits = bit;
    this.#pendingSize = input.length - byte;
    this.#pending = this.#pendingSize > 0 ? [input.subarray(byte)] : [];
    this.#wanted = WANTED;
    if (block !== undefined) await this.#deliverBlock(block);
    return !this.destroyed;
  }

  #readHeader(bits: BitReader): void {
    const magic = bits.take(24);
    const level = bits.take(8) - 0x30;
    if (magic !== 0x425a68 || level < 1 || level > 9) {
      throw this.#streams === 0 ? corrupt('bzip2') : trailing('bzip2');
    }
    this.#level = level;
    this.#streamCrc = 0;
    this.#streams++;
    if (this.#scratch.length < level * 100_000) this.#scratch = new Uint32Array(level * 100_000);
  }

  #readBlockOrEnd(bits: BitReader): Block | undefined {
    const magic = [bits.take(24), bits.take(24)];
    if (magic[0] === BLOCK_MAGIC[0] && magic[1] === BLOCK_MAGIC[1]) {
      return readBlock(bits, this.#scratch.subarray(0, this.#level * 100_000));
    }
    if (magic[0] !== END_MAGIC[0] || magic[1] !== END_MAGIC[1]) throw corrupt('bzip2');
    if (bits.take32() !== this.#streamCrc) throw corrupt('bzip2', new Error('wrong stream checksum'));
    bits.align();
    this.#level = 0;
    return undefined;
  }

  async #deliverBlock(block: Block): Promise<void> {
    const output = blockOutput(block);
    for (;;) {
      const { value, done } = output.next();
      if (done) {
        this.#streamCrc = (((this.#streamCrc << 1) | (this.#streamCrc >>> 31)) ^ value) >>> 0;
        break;
      }
      await this.deliver(value);
      if (this.destroyed) return;
    }
    // Other work of the process gets its turn between the blocks.
    await nextTurn();
  }
}
