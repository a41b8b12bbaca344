import { randomBytes } from 'node:crypto';
import { zstdDecompressSync } from 'node:zlib';
import fc from 'fast-check';
import t from 'tap';
import { FrameCompressor } from '../../nix/compression/frame-compressor.ts';
import { createDecompressor } from '../../nix/compression/streams.ts';

/** Text and noise by turns. */
function mixed(size: number): Buffer {
  const bytes = Buffer.alloc(size, 'some text that shrinks. ');
  for (let at = 0; at < size; at += 20_000) randomBytes(Math.min(9000, size - at)).copy(bytes, at);
  return bytes;
}

t.test('a block gives the same frame whatever was compressed before', async () => {
  const used = new FrameCompressor(3);
  const sizes = fc.oneof(fc.integer({ min: 1, max: 10_000 }), fc.integer({ min: 1, max: 2 << 20 }));
  await fc.assert(
    fc.asyncProperty(sizes, async (size) => {
      const block = mixed(size);
      const frame = await used.compress(block);
      const fresh = await new FrameCompressor(3).compress(block);
      return Buffer.from(frame).equals(fresh) && zstdDecompressSync(frame).equals(block);
    }),
    { numRuns: 60 },
  );
});

t.test('frames in a row decode whole', async (t) => {
  const blocks = [
    mixed(2 << 20),
    randomBytes(1 << 20),
    Buffer.alloc(3 << 20),
    mixed(70_000),
    Buffer.alloc(1),
  ];
  const compressor = new FrameCompressor(3);
  const frames: Uint8Array[] = [];
  for (const block of blocks) frames.push(await compressor.compress(block));
  const reader = createDecompressor('zstd');
  reader.end(Buffer.concat(frames));
  const plain: Buffer[] = [];
  for await (const piece of reader) plain.push(piece);
  t.ok(Buffer.concat(plain).equals(Buffer.concat(blocks)));
});

t.test('a frame names its size and carries a checksum', async (t) => {
  const frame = await new FrameCompressor(1).compress(Buffer.alloc(300));
  t.equal(Buffer.from(frame).readUInt32LE(0), 0xfd2fb528);
  // Frame header: single segment with a size of two bytes, 256 less than it is; and a checksum.
  t.equal(frame[4], 0b0110_0100);
  t.equal(Buffer.from(frame).readUInt16LE(5), 300 - 256);
});
