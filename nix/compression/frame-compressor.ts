import { constants, createZstdCompress, type ZstdCompress } from 'node:zlib';
import { freeNow } from '../../nix/free-now.ts';

/**
 * Bytes of the output buffers, the first for large blocks. Large ones spare turns; but none may have the room for
 * the whole frame of a block that zstd cuts up (beyond 128 KiB), since it then compresses in another way: with
 * this, the same block always gives the same frame.
 */
const LARGE_OUTPUT = 1 << 20;
const SMALL_OUTPUT = 128 << 10;

/**
 * Makes zstd frames of blocks, one after another, on a thread of libuv's pool. Each frame names its size and
 * carries a checksum; frames put in a row are one zstd file.
 *
 * It keeps its memory from block to block, and frees its output at once: left to the garbage collector, which
 * sees little reason to run, the buffers of some GB would pile up to a hundred MB.
 */
export class FrameCompressor {
  readonly #level: number;
  #large: FrameStream | undefined;
  #small: FrameStream | undefined;

  /** @param level 1 to 19 */
  constructor(level: number) {
    this.#level = level;
  }

  /**
   * Compresses a block as one frame, which lies alone in its memory.
   *
   * @param block must not change before the promise settles; nor may another be given before.
   */
  compress(block: Buffer): Promise<Uint8Array<ArrayBuffer>> {
    if (block.length >= LARGE_OUTPUT) {
      this.#large ??= new FrameStream(this.#level, LARGE_OUTPUT);
      return this.#large.compress(block);
    }
    this.#small ??= new FrameStream(this.#level, SMALL_OUTPUT);
    return this.#small.compress(block);
  }
}

class FrameStream {
  readonly #stream: ZstdCompress;
  #pieces: Buffer[] = [];

  constructor(level: number, outputBytes: number) {
    this.#stream = createZstdCompress({
      flush: constants.ZSTD_e_end,
      chunkSize: outputBytes,
      params: {
        [constants.ZSTD_c_compressionLevel]: level,
        [constants.ZSTD_c_checksumFlag]: 1,
      },
    });
    this.#stream.on('data', (piece: Buffer) => this.#pieces.push(piece));
    // Each call gets its error from the write.
    this.#stream.on('error', () => {});
  }

  compress(block: Buffer): Promise<Uint8Array<ArrayBuffer>> {
    return new Promise((resolve, reject) => {
      this.#stream.write(block, (error) => {
        if (error) reject(error);
        else resolve(this.#takeFrame());
      });
    });
  }

  #takeFrame(): Uint8Array<ArrayBuffer> {
    // Whatever the stream still holds is emitted by this.
    this.#stream.read();
    const pieces = this.#pieces;
    this.#pieces = [];
    const frame = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
    let filled = 0;
    for (const piece of pieces) {
      frame.set(piece, filled);
      filled += piece.length;
    }
    // The stream goes on with the last output buffer; those before are full.
    const last = pieces.at(-1)?.buffer;
    for (const { buffer } of pieces) if (buffer !== last) freeNow(buffer);
    return frame;
  }
}
