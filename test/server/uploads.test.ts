import { randomBytes } from 'node:crypto';
import t from 'tap';
import { type Sent, sent, TestOrigin } from '../support/origin.ts';

const PART = 8 << 20;

/** Three parts, which zstd does not make smaller. */
const large = sent(randomBytes(2 * PART + 12_345));

t.test('parts come in any order, again, and before and after a restart', async (t) => {
  const origin = await TestOrigin.start(t);
  const first = await open(origin, large);
  t.match(first, { partSize: PART, parts: [] });
  await put(origin, first.id, 2);
  // A damaged copy that was sent whole is replaced by the next.
  await origin.client().putPart(origin.main, first.id, 0, randomBytes(PART));
  await put(origin, first.id, 0);
  await origin.stop();
  await origin.resume();
  const again = await open(origin, large);
  t.equal(again.id, first.id);
  t.match(again.parts, [
    { number: 0, size: PART, sha256: /^[0-9a-f]{64}$/ },
    { number: 2, size: large.file.length - 2 * PART },
  ]);
  t.match(await commit(origin, again.id), [{ result: 'refused', code: 'incomplete_upload' }]);
  t.same((await open(origin, large)).parts, again.parts, 'a commit that came too early loses nothing');
  await put(origin, again.id, 1);
  t.match(await commit(origin, again.id), [{ result: 'published' }]);
  t.ok((await origin.request(`/main/nar/${large.narHash}.nar.zst`)).body.equals(large.file));
  t.same(origin.files(), { staging: [], blobs: [`${large.narHash}.nar.zst`] });
});

t.test('more parts than the file has', async (t) => {
  const origin = await TestOrigin.start(t);
  const small = sent('small');
  const { id } = await open(origin, small);
  const client = origin.client();
  await client.putPart(origin.main, id, 0, Buffer.concat([small.file, randomBytes(50)]));
  // The part was made shorter by who sent it: nothing of the longer one may stay behind.
  await client.putPart(origin.main, id, 0, small.file);
  t.match(await origin.push([withUpload(small, id)]), [{ result: 'published' }]);
  t.ok((await origin.request(`/main/nar/${small.narHash}.nar.zst`)).body.equals(small.file));
});

t.test('a part that is not what its digest says', async (t) => {
  const origin = await TestOrigin.start(t);
  const one = sent('one');
  const { id } = await open(origin, one);
  const url = `/api/v1/caches/main/uploads/${id}/parts/0`;
  const part = (headers: Record<string, string>, body = one.file) =>
    origin.request(url, {
      method: 'PUT',
      headers: { ...origin.authorization(), 'content-type': 'application/octet-stream', ...headers },
      body,
    });
  const wrong = `sha-256=:${randomBytes(32).toString('base64')}:`;
  for (const headers of [{ 'content-digest': wrong }, { 'content-digest': 'md5=:AA==:' }, {}]) {
    const answer = await part(headers);
    t.equal(answer.status, 400);
    t.match(JSON.parse(answer.body.toString()), { code: 'bad_digest' });
  }
  t.match(JSON.parse((await part({ 'content-digest': wrong }, Buffer.alloc(0))).body.toString()), {
    code: 'bad_part',
  });
  t.same((await open(origin, one)).parts, []);
  t.match(await origin.push([withUpload(one, id)]), [{ result: 'refused', code: 'incomplete_upload' }]);
});

t.test('a part that is too large', async (t) => {
  const origin = await TestOrigin.start(t);
  const { id } = await open(origin, large);
  await t.rejects(origin.client().putPart(origin.main, id, 0, Buffer.alloc(PART + 1)), {
    status: 400,
    code: 'bad_part',
  });
  await t.rejects(origin.client().putPart(origin.main, id, 70_000, Buffer.alloc(1)), {
    status: 413,
    code: 'upload_too_large',
  });
  t.same((await open(origin, large)).parts, []);
});

t.test('a short part in the middle is a gap', async (t) => {
  const origin = await TestOrigin.start(t);
  const { id } = await open(origin, large);
  await origin.client().putPart(origin.main, id, 0, large.file.subarray(0, PART - 1));
  await put(origin, id, 1);
  await put(origin, id, 2);
  t.match(await commit(origin, id), [{ result: 'refused', code: 'incomplete_upload' }]);
});

t.test('an upload of damaged bytes is refused and forgotten', async (t) => {
  const origin = await TestOrigin.start(t);
  const one = sent('one');
  const { id } = await open(origin, one);
  await origin.client().putPart(origin.main, id, 0, one.file.subarray(0, -1));
  t.match(await origin.push([withUpload(one, id)]), [{ result: 'refused', code: 'compression_truncated' }]);
  t.same(origin.files(), { staging: [], blobs: [] });
  t.not((await open(origin, one)).id, id);
});

t.test('uploads that are not there', async (t) => {
  const origin = await TestOrigin.start(t);
  await origin.createCache('second');
  const one = sent('one');
  const other = sent('other');
  const client = origin.client();
  const { id } = await open(origin, one);
  const missing = { status: 404, code: 'no_such_upload' };
  const none = '00000000-0000-4000-8000-000000000000';
  await t.rejects(client.putPart(origin.main, none, 0, one.file), missing);
  await t.rejects(client.dropUpload(origin.main, none), missing);
  await t.rejects(client.dropUpload(origin.main, '..%2f..%2fcatalogue.sqlite'), {
    status: 400,
    code: 'fst_err_validation',
  });
  const refused = [{ result: 'refused', code: 'no_such_upload' }];
  t.match(await origin.push([withUpload(one, none)]), refused);
  t.match(await origin.push([withUpload(one, '../catalogue.sqlite')]), refused);
  await client.putPart(origin.main, id, 0, one.file);
  t.match(await origin.push([withUpload(other, id)]), refused, 'of another path');
  t.same(origin.files().staging, [id]);
  await client.dropUpload(origin.main, id);
  t.same(origin.files().staging, []);
  await t.rejects(client.dropUpload(origin.main, id), missing);
  t.same((await open(origin, one)).parts, []);
});

t.test('the upload of a path that was published meanwhile', async (t) => {
  const origin = await TestOrigin.start(t);
  const one = sent('one');
  const { id } = await open(origin, one);
  await origin.client().putPart(origin.main, id, 0, one.file);
  await origin.push([one]);
  t.same(await origin.push([withUpload(one, id)]), [{ path: one.entry.path, result: 'present' }]);
  t.same(origin.files().staging, []);
});

function open(origin: TestOrigin, { path, narHash }: Sent) {
  return origin.client().openUpload(origin.main, path, narHash);
}

function put(origin: TestOrigin, id: string, number: number): Promise<void> {
  const part = large.file.subarray(number * PART, (number + 1) * PART);
  return origin.client().putPart(origin.main, id, number, part);
}

function commit(origin: TestOrigin, id: string) {
  return origin.push([withUpload(large, id)]);
}

function withUpload(item: Sent, upload: string): Sent {
  return { ...item, entry: { ...item.entry, upload } };
}
