import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, zstdCompressSync } from 'node:zlib';
import fc from 'fast-check';
import t from 'tap';
import { COMPRESSIONS, type Compression } from '../../nix/compression/names.ts';
import { sha256FromBytes } from '../../nix/hash.ts';
import { NarVerifier, type VerifyOptions, verifyNar } from '../../nix/nar/verify.ts';
import { parseNarInfo } from '../../nix/narinfo.ts';
import { createNixSandbox, NO_NIX, nixAvailable } from '../support/nix.ts';
import { narOfFile } from '../support/synthetic-cache.ts';

const PACK = {
  none: (nar: Buffer) => nar,
  zstd: (nar: Buffer) => zstdCompressSync(nar),
  br: (nar: Buffer) => brotliCompressSync(nar),
};

async function* cut(bytes: Buffer, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

const verify = (bytes: Buffer, compression: Compression, options?: VerifyOptions, size = 10_000) =>
  verifyNar(cut(bytes, size), compression, options);

const sha256 = (bytes: Buffer) => sha256FromBytes(createHash('sha256').update(bytes).digest());

t.test('hash and size, whatever the compression and the pieces', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom('none', 'zstd', 'br'),
      fc.integer({ min: 0, max: 600_000 }),
      fc.integer({ min: 1, max: 200_000 }),
      async (compression, fileSize, size) => {
        const nar = narOfFile(randomBytes(fileSize));
        const packed = PACK[compression](nar);
        const digest = await verify(packed, compression, {}, Math.max(size, packed.length >> 8));
        return (
          digest.narHash === sha256(nar) && digest.narSize === nar.length && digest.contentHash === undefined
        );
      },
    ),
    { numRuns: 40 },
  );
});

t.test('frames of zstd in a row', async (t) => {
  const nar = narOfFile(randomBytes(3_000_000));
  const frames: Buffer[] = [];
  for await (const block of cut(nar, 1 << 20)) frames.push(zstdCompressSync(block));
  for (const size of [4_096, 65_536, 1 << 30]) {
    t.equal((await verify(Buffer.concat(frames), 'zstd', {}, size)).narHash, sha256(nar));
  }
  await t.rejects(verify(Buffer.concat(frames.slice(0, -1)), 'zstd'), { code: 'nar_truncated' });
});

t.test('what is wrong with the compressed bytes', async (t) => {
  const nar = narOfFile(randomBytes(300_000));
  for (const compression of ['zstd', 'br'] as const) {
    const packed = PACK[compression](nar);
    await t.rejects(verify(packed.subarray(0, -1), compression), { code: 'compression_truncated' });
    await t.rejects(verify(Buffer.alloc(0), compression), { code: 'compression_truncated' });
    await t.rejects(verify(Buffer.concat([packed, Buffer.from('garbage')]), compression), {
      code: /^compression_/,
    });
    await t.rejects(verify(nar, compression), { code: 'compression_corrupt' });
  }
});

t.test('what is wrong with the NAR inside', async (t) => {
  const nar = narOfFile(randomBytes(300_000));
  for (const compression of ['none', 'zstd', 'br'] as const) {
    const check = (bytes: Buffer) => verify(PACK[compression](bytes), compression);
    await t.rejects(check(nar.subarray(0, -8)), { name: 'FormatError', code: 'nar_truncated' });
    await t.rejects(check(Buffer.alloc(0)), { name: 'FormatError', code: 'nar_truncated' });
    await t.rejects(check(Buffer.concat([nar, Buffer.alloc(8)])), {
      name: 'FormatError',
      code: 'nar_trailing',
    });
    await t.rejects(check(Buffer.alloc(100, 'no NAR')), { name: 'FormatError', code: 'nar_bad_magic' });
    await t.rejects(check(Buffer.alloc(100_000, 'no NAR')), { name: 'FormatError', code: 'nar_bad_magic' });
  }
});

t.test('the size limit holds exactly, and stops a bomb early', async (t) => {
  const nar = narOfFile(Buffer.alloc(50 << 20));
  for (const compression of ['none', 'zstd', 'br'] as const) {
    const packed = PACK[compression](nar);
    t.equal((await verify(packed, compression, { maxNarSize: nar.length })).narSize, nar.length);
    await t.rejects(verify(packed, compression, { maxNarSize: nar.length - 1 }), { code: 'nar_too_large' });
    let seen = 0;
    const visitor = {
      data: (chunk: Uint8Array) => {
        seen += chunk.length;
      },
    };
    await t.rejects(verify(packed, compression, { maxNarSize: 1_000_000, visitor }), {
      code: 'nar_too_large',
    });
    t.ok(seen <= 1_000_000, 'nothing beyond the limit is looked at');
  }
});

t.test('the visitor is told, and can refuse', async (t) => {
  const contents = randomBytes(200_000);
  const packed = PACK.zstd(narOfFile(contents));
  const chunks: Uint8Array[] = [];
  const files: unknown[] = [];
  await verify(packed, 'zstd', {
    visitor: { file: (name, info) => files.push([name, info]), data: (chunk) => chunks.push(chunk) },
  });
  t.same(files, [[undefined, { executable: false, size: 200_000, offset: 96 }]]);
  t.ok(Buffer.concat(chunks).equals(contents));
  const refuse = () => {
    throw new Error('not this one');
  };
  await t.rejects(verify(packed, 'zstd', { visitor: { file: refuse } }), { message: 'not this one' });
});

t.test('content hashes', async (t) => {
  const contents = randomBytes(100_000);
  const nar = narOfFile(contents);
  const packed = PACK.zstd(nar);
  for (const [algorithm, size] of [
    ['md5', 16],
    ['sha1', 20],
    ['sha256', 32],
    ['sha512', 64],
  ] as const) {
    const any = Buffer.alloc(size).toString('hex');
    for (const [prefix, what] of [
      ['fixed:', contents],
      ['fixed:r:', nar],
      ...(algorithm === 'sha256' ? ([['text:', contents]] as const) : []),
    ] as const) {
      const contentAddress = `${prefix}${algorithm}:${any}`;
      const { contentHash, narHash } = await verify(packed, 'zstd', { contentAddress });
      t.equal(contentHash?.toString('hex'), createHash(algorithm).update(what).digest('hex'), contentAddress);
      t.equal(narHash, sha256(nar));
    }
  }
  const git = `fixed:git:sha1:${Buffer.alloc(20).toString('hex')}`;
  t.equal((await verify(packed, 'zstd', { contentAddress: git })).contentHash, undefined);
  t.throws(() => new NarVerifier('zstd', { contentAddress: 'fixed:sha256:x' }), {
    code: 'bad_content_address',
  });
  const flat = `fixed:sha256:${Buffer.alloc(32).toString('hex')}`;
  const seen: string[] = [];
  await verify(packed, 'zstd', { contentAddress: flat, visitor: { file: () => void seen.push('file') } });
  t.same(seen, ['file'], 'the visitor is told all the same');
});

t.test('a failure reaches every later call', async (t) => {
  const verifier = new NarVerifier('zstd');
  await t.rejects(
    async () => {
      for (;;) await verifier.write(Buffer.alloc(100_000, 'x'));
    },
    { code: 'compression_corrupt' },
  );
  await t.rejects(verifier.write(Buffer.from('more')), { code: 'compression_corrupt' });
  await t.rejects(verifier.finish(), { code: 'compression_corrupt' });
  verifier.destroy();
});

t.test('broken off', async (t) => {
  const packed = PACK.zstd(narOfFile(randomBytes(2_000_000)));
  const writing = new NarVerifier('zstd');
  const pending = writing.write(packed);
  writing.destroy();
  await t.rejects(pending, { code: 'nar_aborted' });
  await t.rejects(writing.write(packed), { code: 'nar_aborted' });

  const finishing = new NarVerifier('zstd');
  await finishing.write(packed.subarray(0, 1_000_000));
  const finished = finishing.finish();
  finishing.destroy();
  await t.rejects(finished, { code: 'nar_aborted' });

  const source = (async function* () {
    yield packed.subarray(0, 1_000_000);
    throw new Error('the line is dead');
  })();
  await t.rejects(verifyNar(source, 'zstd'), { message: 'the line is dead' });
});

t.test('what Nix writes', { skip: nixAvailable() ? false : NO_NIX }, async (t) => {
  const nix = createNixSandbox(t);
  const { dir } = nix;
  mkdirSync(join(dir, 'tree', 'sub'), { recursive: true });
  writeFileSync(join(dir, 'tree', 'sub', 'script'), '#!/bin/sh\n', { mode: 0o755 });
  writeFileSync(join(dir, 'tree', 'large'), Buffer.concat([randomBytes(500_000), Buffer.alloc(2_000_000)]));
  writeFileSync(join(dir, 'tree', 'none'), '');
  const full = await nix.must('nix-store', ['--add', 'tree']);
  for (const compression of COMPRESSIONS) {
    const cache = join(dir, compression);
    await nix.must('nix', [
      'copy',
      '--no-check-sigs',
      '--to',
      `file://${cache}?compression=${compression}`,
      full,
    ]);
    const name = readdirSync(cache).find((entry) => entry.endsWith('.narinfo'));
    const info = parseNarInfo(readFileSync(join(cache, name ?? ''), 'utf8'));
    t.equal(info.compression, compression);
    const digest = await verifyNar(createReadStream(join(cache, info.url)), compression, {
      maxNarSize: info.narSize,
    });
    t.match(digest, { narHash: info.narHash, narSize: info.narSize }, compression);
  }
});
