import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { sent, TestOrigin, temporaryDirectory } from '../support/origin.ts';

const FULL = { status: 507, code: 'disk_full', hint: /free space/ };
const NO_MOUNT = 'only who may mount a small file system can fill it';

const directory = temporaryDirectory(t);
const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=6m', 'tmpfs', directory]).status === 0;
t.teardown(() => {
  if (mounted) spawnSync('umount', [directory]);
});

t.test('a full disk', mounted ? {} : { skip: NO_MOUNT }, async (t) => {
  const origin = await TestOrigin.start(t, { stateDir: directory });
  const client = origin.client();
  const first = sent('there before');
  const uploaded = sent(randomBytes(100_000));
  t.match(await origin.push([first]), [{ result: 'published' }]);
  const { id } = await client.openUpload(origin.main, uploaded.path, uploaded.narHash);
  await client.putPart(origin.main, id, 0, uploaded.file);
  const before = origin.files();

  const ballast = join(directory, 'ballast');
  writeFileSync(ballast, Buffer.alloc(3 << 20));
  const large = sent(randomBytes(4 << 20));
  const inUpload = { ...uploaded, entry: { ...uploaded.entry, upload: id } };
  const small = sent('small');
  await t.rejects(origin.push([small, inUpload, large]), FULL);
  const upload = await client.openUpload(origin.main, large.path, large.narHash);
  await t.rejects(client.putPart(origin.main, upload.id, 0, large.file), FULL);
  await client.dropUpload(origin.main, upload.id);

  t.same(origin.files(), before, 'what was there stays, and nothing else');
  for (const { hash } of [small, uploaded, large]) {
    t.equal((await origin.request(`/main/${hash}.narinfo`)).status, 404);
  }
  t.ok((await origin.request(`/main/nar/${first.narHash}.nar.zst`)).body.equals(first.file));
  t.equal((await client.user()).name, 'tester');

  rmSync(ballast);
  t.match(await origin.push([small, inUpload, large]), [
    { result: 'published' },
    { result: 'published' },
    { result: 'published' },
  ]);
  t.same(origin.files().staging, []);
});

t.test('not a byte is left', mounted ? {} : { skip: NO_MOUNT }, async (t) => {
  rmSync(join(directory, 'blobs'), { recursive: true, force: true });
  rmSync(join(directory, 'catalogue.sqlite'), { force: true });
  const origin = await TestOrigin.start(t, { stateDir: directory });
  const one = sent('one');
  await origin.push([one]);
  const before = origin.files();
  const ballast = join(directory, 'ballast');
  t.throws(() => writeFileSync(ballast, Buffer.alloc(8 << 20)), { code: 'ENOSPC' });
  // So many that the catalogue's journal has to grow.
  const many = Array.from({ length: 400 }, (_, i) => sent(`number ${i}`));
  await t.rejects(origin.push(many), FULL);
  t.same(origin.files(), before);
  const client = origin.client();
  const hashes = many.map(({ hash }) => hash);
  t.same(await client.missing(origin.main, hashes), hashes);
  t.equal((await origin.request(`/main/${one.hash}.narinfo`)).status, 200);
  rmSync(ballast);
  t.ok((await origin.push(many)).every(({ result }) => result === 'published'));
});
