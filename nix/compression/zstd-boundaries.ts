import { corrupt, trailing, truncated } from './errors.ts';

const FRAME_MAGIC = 0xfd2fb528;
const SKIPPABLE_MAGIC = 0x184d2a50;
const SKIPPABLE_MASK = 0xfffffff0;

// A frame costs a turn of the decompressor however small it is; those in use hold 128 KiB and more.
const MAX_FRAMES = 1 << 20;

const DICTIONARY_ID_SIZE = [0, 1, 2, 4];
const CONTENT_SIZE_SIZE = [0, 2, 4, 8];

type State = 'magic' | 'skippable-size' | 'descriptor' | 'header' | 'block' | 'payload' | 'end';

/**
 * Finds where zstd frames end, by their block headers alone.
 *
 * Node's decompressor takes the end of the first frame inside a chunk for the end of everything, and
 * forgets the rest of that chunk; it reads one frame after another as long as no chunk spans two.
 */
export class ZstdBoundaries {
  #state: State = 'magic';
  /** A fixed-size field that is being collected: its bytes so far, little endian, and how many are missing. */
  #value = 0;
  #collected = 0;
  /** Bytes to pass over before the next state. */
  #skip = 0;
  #lastBlock = false;
  #checksum = false;
  #frames = 0;

  /**
   * Where the piece of `chunk` that starts at `from` ends: behind the first frame that ends in it, or at
   * the end of the chunk.
   *
   * @throws FormatError for what cannot be a frame.
   */
  next(chunk: Uint8Array, from: number): number {
    let at = from;
    while (at < chunk.length) {
      if (this.#skip > 0) {
        const step = Math.min(this.#skip, chunk.length - at);
        this.#skip -= step;
        at += step;
      } else if (this.#collect(chunk[at] as number)) {
        at++;
        this.#field();
      } else {
        at++;
      }
      if (this.#skip === 0 && this.#afterSkip()) return at;
    }
    return at;
  }

  /** @throws FormatError unless the bytes so far are one or more whole frames. */
  end(): void {
    if (this.#frames === 0 || this.#state !== 'magic' || this.#collected > 0) throw truncated('zstd');
  }

  #collect(byte: number): boolean {
    this.#value += byte * 2 ** (8 * this.#collected);
    this.#collected++;
    const size = this.#state === 'block' ? 3 : this.#state === 'descriptor' ? 1 : 4;
    return this.#collected === size;
  }

  /** A field is complete. */
  #field(): void {
    const value = this.#value;
    this.#value = 0;
    this.#collected = 0;
    switch (this.#state) {
      case 'magic':
        this.#startFrame(value);
        return;
      case 'skippable-size':
        this.#skip = value;
        this.#state = 'end';
        return;
      case 'descriptor': {
        const singleSegment = (value & 0x20) !== 0;
        const sizeField = CONTENT_SIZE_SIZE[value >> 6] as number;
        this.#checksum = (value & 4) !== 0;
        this.#skip =
          (singleSegment ? Math.max(sizeField, 1) : 1 + sizeField) +
          (DICTIONARY_ID_SIZE[value & 3] as number);
        this.#state = 'header';
        return;
      }
      default: {
        const type = (value >> 1) & 3;
        if (type === 3) throw corrupt('zstd');
        this.#lastBlock = (value & 1) !== 0;
        this.#skip = type === 1 ? 1 : value >> 3;
        this.#state = 'payload';
      }
    }
  }

  #startFrame(magic: number): void {
    if (magic === FRAME_MAGIC) this.#state = 'descriptor';
    else if ((magic & SKIPPABLE_MASK) >>> 0 === SKIPPABLE_MAGIC) this.#state = 'skippable-size';
    else throw this.#frames === 0 ? corrupt('zstd') : trailing('zstd');
    if (++this.#frames > MAX_FRAMES) throw corrupt('zstd', new Error('too many frames'));
  }

  /** Moves on from what has been passed over; true where a frame ends. */
  #afterSkip(): boolean {
    if (this.#state === 'header') this.#state = 'block';
    if (this.#state === 'payload') {
      if (!this.#lastBlock) {
        this.#state = 'block';
        return false;
      }
      this.#state = 'end';
      if (this.#checksum) {
        this.#skip = 4;
        return false;
      }
    }
    if (this.#state !== 'end') return false;
    this.#state = 'magic';
    return true;
  }
}
