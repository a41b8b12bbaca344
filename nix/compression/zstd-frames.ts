import { promisify } from 'node:util';
import { constants, zstdCompress } from 'node:zlib';

const compress = promisify(zstdCompress);

/**
 * Compresses `block` as one zstd frame of its own, on a thread of the pool.
 *
 * Frames may be put one after another: a NAR compressed in blocks uses every core, and any zstd reader
 * takes the row of frames for one file. Each frame names its size and carries a checksum.
 *
 * @param block must not change before the promise resolves.
 * @param level 1 to 19
 */
export function compressFrame(block: Buffer, level: number): Promise<Buffer> {
  return compress(block, {
    // Room for a block that does not shrink, so that one turn of the compressor does it.
    chunkSize: block.length + (block.length >> 8) + 1024,
    pledgedSrcSize: block.length,
    params: {
      [constants.ZSTD_c_compressionLevel]: level,
      [constants.ZSTD_c_checksumFlag]: 1,
    },
  });
}
