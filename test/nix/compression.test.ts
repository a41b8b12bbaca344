import { execFileSync, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { brotliCompressSync, constants, zstdCompressSync } from 'node:zlib';
import fc from 'fast-check';
import t from 'tap';
import { FrameCompressor } from '../../nix/compression/frame-compressor.ts';
import type { Compression } from '../../nix/compression/names.ts';
import { createCompressor, createDecompressor } from '../../nix/compression/streams.ts';

/** Text, zeros and noise: several blocks of each format. */
const PLAIN = Buffer.concat([
  Buffer.from(Array.from({ length: 60_000 }, (_, i) => `line ${i} of some text\n`).join('')),
  Buffer.alloc(1_500_000),
  randomBytes(150_000),
  Buffer.from('aaaa\0aaaaaaabbbbb'.repeat(999)),
]);

/** Runs `input` through `stream` in pieces of `size` bytes. */
async function through(stream: Duplex, input: Buffer, size = 65_536): Promise<Buffer> {
  async function* pieces() {
    for (let at = 0; at < input.length; at += size) yield input.subarray(at, at + size);
  }
  const output: Buffer[] = [];
  const read = (async () => {
    for await (const chunk of stream) output.push(chunk);
  })();
  const written = (async () => {
    for await (const piece of pieces()) {
      if (stream.destroyed) return;
      if (!stream.write(piece))
        await Promise.race([read, new Promise((resolve) => stream.once('drain', resolve))]);
    }
    stream.end();
  })();
  await Promise.all([read, written]);
  return Buffer.concat(output);
}

const unpack = (compression: Compression, input: Buffer, size?: number) =>
  through(createDecompressor(compression), input, size);

function tool(name: string, plain: Buffer): Buffer {
  return execFileSync(name, ['-c'], { input: plain, maxBuffer: 1 << 30 });
}

/** Compressors that are not our own code; bzip2 and xz where the tool is installed. */
const FOREIGN: Partial<Record<Compression, (plain: Buffer) => Buffer>> = {
  zstd: (plain) => zstdCompressSync(plain),
  br: (plain) => brotliCompressSync(plain, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } }),
};
if (spawnSync('bzip2', ['--help']).status === 0) FOREIGN.bzip2 = (plain) => tool('bzip2', plain);
if (spawnSync('xz', ['--version']).status === 0) FOREIGN.xz = (plain) => tool('xz', plain);

for (const [name, compress] of Object.entries(FOREIGN)) {
  const compression = name as Compression;
  t.test(`${compression}: reading`, async (t) => {
    const packed = compress(PLAIN);
    t.ok((await unpack(compression, packed)).equals(PLAIN), 'what another program packed');
    t.ok((await unpack(compression, packed, packed.length)).equals(PLAIN), 'in one piece');
    t.ok((await unpack(compression, packed, 9_973)).equals(PLAIN), 'in odd pieces');
    const few = compress(PLAIN.subarray(0, 100));
    t.ok((await unpack(compression, few, 1)).equals(PLAIN.subarray(0, 100)), 'byte by byte');
    t.equal((await unpack(compression, compress(Buffer.alloc(0)))).length, 0, 'nothing, packed');
  });

  t.test(`${compression}: input that stops early`, async (t) => {
    const packed = compress(PLAIN.subarray(0, 1_400_000));
    for (const size of [0, 1, 3, 5, 10, packed.length >> 1, packed.length - 4, packed.length - 1]) {
      const cut = packed.subarray(0, size);
      for (const piece of [cut.length || 1, 4_096]) {
        await t.rejects(
          unpack(compression, cut, piece),
          { code: 'compression_truncated' },
          `after ${size} bytes`,
        );
      }
    }
  });

  t.test(`${compression}: something behind the end`, async (t) => {
    const packed = compress(PLAIN.subarray(0, 1_000));
    for (const garbage of ['g', 'garbage', 'more garbage than any header is long', '\0']) {
      const input = Buffer.concat([packed, Buffer.from(garbage)]);
      for (const size of [input.length, packed.length, 7]) {
        await t.rejects(
          unpack(compression, input, size),
          { name: 'FormatError', code: /^compression_/ },
          garbage,
        );
      }
    }
  });

  t.test(`${compression}: what is not ${compression}`, async (t) => {
    for (const input of [Buffer.alloc(1_000, 'hello'), Buffer.alloc(1_000, 0xff), randomBytes(100_000)]) {
      await t.rejects(unpack(compression, input), { name: 'FormatError', code: /^compression_/ });
    }
  });
}

for (const compression of ['zstd', 'xz', 'bzip2'] as const) {
  const compress = FOREIGN[compression];
  if (compress === undefined) continue;
  t.test(`${compression}: several in a row are one`, async (t) => {
    const parts = [
      PLAIN.subarray(0, 300_000),
      Buffer.alloc(0),
      Buffer.from('x'),
      PLAIN.subarray(300_000, 1_200_000),
    ];
    const packed = parts.map(compress);
    const row = Buffer.concat(packed);
    const plain = Buffer.concat(parts);
    for (const size of [row.length, 65_536, 13, packed[0]!.length, packed[0]!.length - 2]) {
      t.ok((await unpack(compression, row, size)).equals(plain), `in pieces of ${size}`);
    }
    await t.rejects(unpack(compression, row.subarray(0, -1)), { code: 'compression_truncated' });
    await t.rejects(unpack(compression, row.subarray(0, row.length - packed[3]!.length + 2)), {
      code: 'compression_truncated',
    });
  });

  t.test(`${compression}: a changed byte does not go unnoticed`, async (t) => {
    const plain = PLAIN.subarray(1_200_000, 1_260_000);
    const packed = compression === 'zstd' ? await new FrameCompressor(3).compress(plain) : compress(plain);
    await fc.assert(
      fc.asyncProperty(fc.nat(packed.length - 1), fc.integer({ min: 1, max: 255 }), async (at, mask) => {
        const changed = Buffer.from(packed);
        changed[at] = changed[at]! ^ mask;
        try {
          // A change may be without meaning; then nothing else may come of it.
          return (await unpack(compression, changed)).equals(plain);
        } catch (error) {
          return (error as Error).name === 'FormatError';
        }
      }),
      { numRuns: 60 },
    );
    t.pass();
  });
}

t.test('what we write is read back by us and by the tools', async (t) => {
  for (const compression of ['zstd', 'xz', 'none'] as const) {
    for (const level of [undefined, 1]) {
      const packed = await through(createCompressor(compression, { level }), PLAIN.subarray(0, 2_000_000));
      t.ok(
        (await unpack(compression, packed)).equals(PLAIN.subarray(0, 2_000_000)),
        `${compression} ${level}`,
      );
      if (compression === 'none' || spawnSync(compression, ['--version']).status !== 0) continue;
      t.ok(
        execFileSync(compression, ['-dc'], { input: packed, maxBuffer: 1 << 26 }).equals(
          PLAIN.subarray(0, 2_000_000),
        ),
        `${compression} by its tool`,
      );
    }
    t.equal(
      (await unpack(compression, await through(createCompressor(compression), Buffer.alloc(0)))).length,
      0,
    );
  }
});

t.test('round trips of any bytes in any pieces', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom('zstd', 'xz', 'none'),
      fc.uint8Array({ maxLength: 5_000 }),
      fc.integer({ min: 1, max: 3_000 }),
      async (compression, bytes, size) => {
        const plain = Buffer.from(bytes);
        const packed = await through(createCompressor(compression, { level: 1 }), plain, size);
        return (await unpack(compression, packed, size)).equals(plain);
      },
    ),
    { numRuns: 60 },
  );
});

t.test('frames of zstd', async (t) => {
  const blocks = [
    PLAIN.subarray(0, 1 << 20),
    PLAIN.subarray(1 << 20, 2 << 20),
    randomBytes(1 << 20),
    Buffer.alloc(1),
  ];
  const frames = blocks.map((block) => zstdCompressSync(block));
  t.ok((await unpack('zstd', Buffer.concat(frames))).equals(Buffer.concat(blocks)));
  t.equal((await unpack('zstd', zstdCompressSync(Buffer.alloc(0)))).length, 0);
  const skippable = Buffer.from('502a4d1803000000aabbcc', 'hex');
  const emptySkippable = Buffer.from('5f2a4d1800000000', 'hex');
  const row = Buffer.concat([skippable, frames[0]!, emptySkippable, emptySkippable, frames[3]!, skippable]);
  for (const size of [row.length, 5]) {
    t.ok(
      (await unpack('zstd', row, size)).equals(Buffer.concat([blocks[0]!, blocks[3]!])),
      'skippable frames',
    );
  }
});

t.test('a zstd window or an xz dictionary beyond the limit', async (t) => {
  // A frame header that asks for a window of 256 MiB, and an empty last block.
  const header = Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0, 18 << 3, 1, 0, 0]);
  await t.rejects(unpack('zstd', header), { code: 'compression_limit' });
  if (FOREIGN.xz === undefined) return;
  const input = execFileSync('xz', ['-c', '--lzma2=preset=0,dict=256MiB'], { input: PLAIN.subarray(0, 100) });
  await t.rejects(unpack('xz', input), { code: 'compression_limit' });
});

const noBzip2 = FOREIGN.bzip2 === undefined && 'bzip2 is not installed';
t.test('bzip2 of every block size, and blocks that are mostly runs', { skip: noBzip2 }, async (t) => {
  for (const level of ['-1', '-5', '-9']) {
    const packed = execFileSync('bzip2', ['-c', level], { input: PLAIN, maxBuffer: 1 << 26 });
    t.ok((await unpack('bzip2', packed)).equals(PLAIN), level);
  }
  for (const run of [3, 4, 5, 258, 259, 260, 300]) {
    const plain = Buffer.from(['a'.repeat(run), 'b', 'a'.repeat(run), 'c'.repeat(run)].join(''));
    t.ok((await unpack('bzip2', tool('bzip2', plain))).equals(plain), `runs of ${run}`);
  }
});

for (const compression of ['zstd', 'br', 'xz', 'bzip2'] as const) {
  const compress = FOREIGN[compression];
  if (compress === undefined) continue;
  t.test(`${compression}: a reader that is behind holds the decompressor up`, async (t) => {
    const bomb = compress(Buffer.alloc(50 << 20));
    const stream = createDecompressor(compression);
    stream.end(bomb);
    let peak = 0;
    for (let i = 0; i < 15; i++) {
      await sleep(20);
      peak = Math.max(peak, stream.readableLength);
    }
    t.ok(peak > 0, 'something was unpacked');
    t.ok(peak <= 2 << 20, `${peak} bytes wait to be read`);
    let size = 0;
    for await (const chunk of stream) {
      size += chunk.length;
      if (size > 20 << 20) break;
    }
    t.ok(stream.destroyed, 'and it can be left in the middle');
  });

  t.test(`${compression}: broken off at any time`, async (t) => {
    const packed = compress(PLAIN);
    for (const turns of [0, 1, 2, 5]) {
      const stream = createDecompressor(compression);
      stream.on('data', () => {});
      const closed = new Promise((resolve) => stream.on('close', resolve));
      stream.write(packed);
      for (let i = 0; i < turns; i++) await sleep(1);
      stream.destroy();
      await closed;
      t.ok(stream.destroyed);
    }
  });
}
