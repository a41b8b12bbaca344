import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { sent, TestOrigin } from '../support/origin.ts';

t.test('a start removes what no record names, and nothing else', async (t) => {
  const origin = await TestOrigin.start(t);
  const kept = sent('kept');
  await origin.push([kept]);
  const open = sent('open');
  const client = origin.client();
  const upload = await client.openUpload(origin.main, open.path, open.narHash);
  await client.putPart(origin.main, upload.id, 0, open.file);
  await origin.stop();

  const { narHash } = sent('a blob that got no entry');
  const shard = join(origin.stateDir, 'blobs', narHash.slice(-2));
  mkdirSync(shard, { recursive: true });
  writeFileSync(join(shard, `${narHash}.nar.zst`), 'orphan');
  writeFileSync(join(origin.stateDir, 'staging', randomUUID()), 'half a NAR');
  // What others put there.
  const strange = ['blobs/lost+found', 'staging/lost+found', `blobs/${narHash.slice(-2)}/directory`];
  for (const name of strange) mkdirSync(join(origin.stateDir, name));
  writeFileSync(join(shard, 'README'), 'not a blob');
  writeFileSync(join(origin.stateDir, 'blobs', 'NOTES'), 'not a shard');
  await origin.resume();

  t.same(origin.files(), {
    staging: [upload.id],
    blobs: [`${kept.narHash}.nar.zst`, 'NOTES', 'README'].sort(),
  });
  for (const name of strange) t.ok(existsSync(join(origin.stateDir, name)), name);
  t.ok((await origin.request(`/main/nar/${kept.narHash}.nar.zst`)).body.equals(kept.file));
  const again = await origin.client().openUpload(origin.main, open.path, open.narHash);
  t.match(again, { id: upload.id, parts: [{ number: 0, size: open.file.length }] });
  const entry = { ...open.entry, upload: upload.id };
  t.match(await origin.push([{ ...open, entry }]), [{ result: 'published' }]);
});

t.test('a blob that a crash left without a record is taken up by the next push of it', async (t) => {
  const origin = await TestOrigin.start(t);
  const one = sent('one');
  // As if a commit had been cut off right now, between its file and its record.
  const shard = join(origin.stateDir, 'blobs', one.narHash.slice(-2));
  mkdirSync(shard);
  writeFileSync(join(shard, `${one.narHash}.nar.zst`), one.file);
  t.match(await origin.push([one]), [{ result: 'published' }]);
  t.ok((await origin.request(`/main/nar/${one.narHash}.nar.zst`)).body.equals(one.file));
  t.same(origin.files(), { staging: [], blobs: [`${one.narHash}.nar.zst`] });
});

t.test('what was published outlasts a restart', async (t) => {
  const origin = await TestOrigin.start(t);
  const one = sent('one');
  await origin.push([one]);
  const before = await origin.request(`/main/${one.hash}.narinfo`);
  await origin.stop();
  await origin.resume();
  const after = await origin.request(`/main/${one.hash}.narinfo`);
  t.equal(after.status, 200);
  t.ok(after.body.equals(before.body));
  t.match(await origin.push([one]), [{ result: 'present' }]);
});

t.test('an upload whose file is gone is started anew', async (t) => {
  const origin = await TestOrigin.start(t);
  const one = sent('one');
  const client = origin.client();
  const { id } = await client.openUpload(origin.main, one.path, one.narHash);
  await client.putPart(origin.main, id, 0, one.file);
  rmSync(join(origin.stateDir, 'staging', id));
  const commit = () => origin.push([{ ...one, entry: { ...one.entry, upload: id } }]);
  t.match(await commit(), [{ result: 'refused', code: 'no_such_upload' }]);
  t.match(await client.openUpload(origin.main, one.path, one.narHash), { parts: [] });
});
