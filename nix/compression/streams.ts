import { type Duplex, PassThrough } from 'node:stream';
import { Bzip2Decompressor } from './bzip2.ts';
import type { Compression } from './names.ts';
import { createXzCompressor, createXzDecompressor } from './xz.ts';
import { BrotliDecompressor, createZstdCompressor, ZstdDecompressor } from './zlib-streams.ts';

/** What we write; the other compressions are only read. */
export type WrittenCompression = Extract<Compression, 'none' | 'xz' | 'zstd'>;

/**
 * A stream from compressed bytes to plain ones. It makes no more output than is read, however well the
 * input was compressed.
 *
 * It fails with FormatError `compression_corrupt`, `compression_truncated` where the input stops early,
 * `compression_trailing` where something follows it, `compression_limit` where unpacking would take more
 * than about 128 MiB of memory.
 */
export function createDecompressor(compression: Compression): Duplex {
  switch (compression) {
    case 'none':
      return new PassThrough();
    case 'xz':
      return createXzDecompressor();
    case 'zstd':
      return new ZstdDecompressor();
    case 'br':
      return new BrotliDecompressor();
    case 'bzip2':
      return new Bzip2Decompressor();
  }
}

/**
 * A stream from plain bytes to compressed ones.
 *
 * @param options.level 1 to 19 for zstd (3), 0 to 9 for xz (6)
 */
export function createCompressor(
  compression: WrittenCompression,
  options: { level?: number | undefined } = {},
): Duplex {
  switch (compression) {
    case 'none':
      return new PassThrough();
    case 'xz':
      return createXzCompressor(options.level ?? 6);
    case 'zstd':
      return createZstdCompressor(options.level ?? 3);
  }
}
