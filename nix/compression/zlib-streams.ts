import type { TransformCallback } from 'node:stream';
import { BrotliDecompress, constants, ZstdCompress, ZstdDecompress } from 'node:zlib';
import { beyondLimit, corrupt, trailing, truncated } from './errors.ts';
import { CHUNK_SIZE } from './limits.ts';
import { ZstdBoundaries } from './zstd-boundaries.ts';

/** The largest window a frame may ask for, as a power of two: 128 MiB, the limit of the zstd tools as well. */
const WINDOW_LOG_MAX = 27;

/** Input that waits keeps the decompressor's thread busy while its writer is told of the room. */
const BUFFERS = { chunkSize: CHUNK_SIZE, writableHighWaterMark: CHUNK_SIZE };

/** Reads zstd, also several frames one after another. */
export class ZstdDecompressor extends ZstdDecompress {
  readonly #boundaries = new ZstdBoundaries();

  constructor() {
    super({ ...BUFFERS, params: { [constants.ZSTD_d_windowLogMax]: WINDOW_LOG_MAX } });
  }

  override _transform(chunk: Buffer, encoding: BufferEncoding, callback: TransformCallback): void {
    const pass = (from: number): void => {
      let to: number;
      try {
        to = this.#boundaries.next(chunk, from);
      } catch (error) {
        callback(error as Error);
        return;
      }
      const piece = from === 0 && to === chunk.length ? chunk : chunk.subarray(from, to);
      super._transform(piece, encoding, to === chunk.length ? callback : () => pass(to));
    };
    pass(0);
  }

  override _flush(callback: TransformCallback): void {
    try {
      this.#boundaries.end();
    } catch (error) {
      callback(error as Error);
      return;
    }
    callback();
  }

  override destroy(error?: Error): this {
    return super.destroy(error && formatError('zstd', error));
  }
}

/** Reads brotli. */
export class BrotliDecompressor extends BrotliDecompress {
  #given = 0;

  constructor() {
    super(BUFFERS);
  }

  override _transform(chunk: Buffer, encoding: BufferEncoding, callback: TransformCallback): void {
    this.#given += chunk.length;
    super._transform(chunk, encoding, callback);
  }

  // Node ends the stream quietly when the decoder is done, whether or not it took all it was given.
  override push(chunk: Buffer | null): boolean {
    if (chunk !== null || this.bytesWritten === this.#given) return super.push(chunk);
    this.destroy(trailing('brotli'));
    return false;
  }

  override destroy(error?: Error): this {
    return super.destroy(error && formatError('brotli', error));
  }
}

/** Writes one zstd frame with a checksum. */
export function createZstdCompressor(level: number): ZstdCompress {
  return new ZstdCompress({
    ...BUFFERS,
    params: {
      [constants.ZSTD_c_compressionLevel]: level,
      [constants.ZSTD_c_checksumFlag]: 1,
    },
  });
}

/** The decoders' own errors in the house's shape; anything else as it is. */
function formatError(compression: string, error: Error): Error {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === undefined || code === 'ZSTD_error_memory_allocation') return error;
  if (code === 'Z_BUF_ERROR') return truncated(compression, error);
  if (code === 'ZSTD_error_frameParameter_windowTooLarge') {
    return beyondLimit(compression, 'a window of more than 128 MiB', error);
  }
  return /^(ZSTD_error|ERR__ERROR_FORMAT)/.test(code) ? corrupt(compression, error) : error;
}
