import { createHash, randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { zstdDecompressSync } from 'node:zlib';
import t from 'tap';
import { type Dump, DumpWorkers } from '../../agent/push/dump-workers.ts';
import { sha256FromBytes } from '../../nix/hash.ts';
import { writeNar } from '../../nix/nar/write.ts';

/** Text and noise by turns. */
function mixed(size: number): Buffer {
  const bytes = Buffer.alloc(size, 'some text that shrinks. ');
  for (let at = 0; at < size; at += 20_000) randomBytes(Math.min(9000, size - at)).copy(bytes, at);
  return bytes;
}

async function readDump(dump: Dump): Promise<Buffer[]> {
  const frames: Buffer[] = [];
  for await (const { bytes } of dump.frames()) frames.push(bytes);
  return frames;
}

t.test('dumps side by side', async (t) => {
  const dir = t.testdir();
  const workers = new DumpWorkers(2, 3);
  t.teardown(() => workers.close());
  const sizes = [0, 1, 5000, 3 << 20, 9 << 20, 21 << 20];
  const roots = sizes.map((size) => join(dir, `file-${size}`));
  for (const [index, root] of roots.entries()) writeFileSync(root, mixed(sizes[index] as number));
  await Promise.all(
    roots.map(async (root) => {
      const nar = Buffer.concat([...writeNar(root)]);
      const dump = workers.dump(root);
      const frames = await readDump(dump);
      t.equal(frames.length, Math.ceil(nar.length / (2 << 20)), 'one frame a block');
      t.ok(Buffer.concat(frames.map((frame) => zstdDecompressSync(frame))).equals(nar));
      const narHash = sha256FromBytes(createHash('sha256').update(nar).digest());
      t.same(dump.digest, { narHash, narSize: nar.length });
      const again = await readDump(workers.dump(root));
      t.ok(Buffer.concat(again).equals(Buffer.concat(frames)), 'the same again');
    }),
  );
});

t.test('a dump that cannot be made fails alone', async (t) => {
  const dir = t.testdir({ file: 'contents' });
  const workers = new DumpWorkers(1, 3);
  t.teardown(() => workers.close());
  await t.rejects(readDump(workers.dump(join(dir, 'none'))), { code: 'nar_unreadable', message: /none/ });
  t.equal((await readDump(workers.dump(join(dir, 'file')))).length, 1);
});

t.test('no more is dumped than is read, and one may stop reading', async (t) => {
  const dir = t.testdir();
  const large = join(dir, 'large');
  writeFileSync(large, mixed(60 << 20));
  const workers = new DumpWorkers(1, 1);
  t.teardown(() => workers.close());
  for (let i = 0; i < 5; i++) {
    for await (const { narBytes } of workers.dump(large).frames()) {
      t.equal(narBytes, 2 << 20);
      break;
    }
  }
  const small = join(dir, 'small');
  writeFileSync(small, 'small');
  t.equal((await readDump(workers.dump(small))).length, 1, 'the thread is free for others');
});

t.test('closing ends dumps under way', async (t) => {
  const dir = t.testdir();
  const large = join(dir, 'large');
  writeFileSync(large, mixed(60 << 20));
  const workers = new DumpWorkers(1, 1);
  const dump = workers.dump(large);
  const read = (async () => {
    for await (const _frame of dump.frames()) await workers.close();
  })();
  await t.rejects(read, { message: /ended/ });
});
