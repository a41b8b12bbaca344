import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { constants, zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import t from 'tap';
import { COMMIT_TYPE } from '../../api/commit-body.ts';
import { encodeCommit } from '../../api/commit-encode.ts';
import { formatSha256 } from '../../nix/hash.ts';
import { verifyAny } from '../../nix/keys.ts';
import { fingerprint, parseNarInfo } from '../../nix/narinfo.ts';
import { parseStorePath } from '../../nix/store-path.ts';
import { eventually, type Sent, sent, sha256, TestOrigin } from '../support/origin.ts';

const NOTHING = { staging: [], blobs: [] };

t.test('what was pushed is served, signed by its cache', async (t) => {
  const origin = await TestOrigin.start(t);
  const { name, publicKey } = await origin.createCache('signed');
  const foreign = `elsewhere-1:${randomBytes(64).toString('base64')}`;
  const base = sent('base');
  const user = sent('user', {
    references: [base.path],
    entry: { signatures: [foreign], deriver: `${base.hash}-thing.drv` },
  });
  const results = await origin.push([base, user], name);
  t.same(results, [
    { path: base.entry.path, result: 'published' },
    { path: user.entry.path, result: 'published' },
  ]);
  const answer = await origin.request(`/${name}/${user.hash}.narinfo`);
  t.equal(answer.status, 200);
  t.equal(answer.headers['content-type'], 'text/x-nix-narinfo');
  const info = parseNarInfo(answer.body.toString());
  t.match(info, {
    path: user.path,
    narHash: user.narHash,
    narSize: user.entry.narSize,
    references: [base.path],
    deriver: `${base.hash}-thing.drv`,
    compression: 'zstd',
    fileHash: sha256(user.file),
    fileSize: user.file.length,
  });
  t.ok(verifyAny([publicKey], fingerprint(info), info.signatures));
  t.ok((info.signatures as readonly string[]).includes(foreign), 'signatures it came with are kept');
  const nar = await origin.request(`/${name}/${info.url}`);
  t.equal(nar.status, 200);
  t.ok(nar.body.equals(user.file), 'the file is served as it was sent');
  t.same(origin.files().staging, []);
  t.same(
    await origin
      .client()
      .missing(name, [base.hash, sent('other').hash, user.hash])
      .then((m) => m.length),
    1,
  );
});

t.test('a path may refer to itself', async (t) => {
  const origin = await TestOrigin.start(t);
  const path = parseStorePath(`${'1'.repeat(32)}-self`);
  t.match(await origin.push([sent(path, { path, references: [path] })]), [{ result: 'published' }]);
});

t.test('the same NAR through an upload', async (t) => {
  const origin = await TestOrigin.start(t);
  const one = sent('through an upload');
  const client = origin.client();
  const upload = await client.openUpload(origin.main, one.path, one.narHash);
  await client.putPart(origin.main, upload.id, 0, one.file);
  t.match(await origin.push([withEntry(one, { upload: upload.id })]), [{ result: 'published' }]);
  t.ok((await origin.request(`/main/nar/${one.narHash}.nar.zst`)).body.equals(one.file));
  t.same(origin.files(), { staging: [], blobs: [`${one.narHash}.nar.zst`] });
  const again = await client.openUpload(origin.main, one.path, one.narHash);
  t.not(again.id, upload.id, 'the finished upload is gone');
});

t.test('what is not what it says it is', async (t) => {
  const origin = await TestOrigin.start(t);
  const good = sent('some contents');
  const wrongHash = formatSha256(sha256(Buffer.from('something else')));
  const noNar = Buffer.from('this is not a NAR, however long one reads on');
  const cases: [code: string, item: Sent][] = [
    ['nar_hash_mismatch', withEntry(good, { narHash: wrongHash })],
    ['nar_size_mismatch', withEntry(good, { narSize: good.entry.narSize + 8 })],
    ['nar_too_large', withEntry(good, { narSize: good.entry.narSize - 8 })],
    ['nar_bad_magic', { ...withEntry(good, describe(noNar)), file: zstdCompressSync(noNar) }],
    ['compression_corrupt', { ...good, file: Buffer.from('this was never compressed at all') }],
    ['compression_truncated', { ...good, file: good.file.subarray(0, -3) }],
    ['compression_truncated', { ...good, file: Buffer.alloc(0) }],
    ['compression_trailing', { ...good, file: Buffer.concat([good.file, Buffer.from('and more')]) }],
    ['bad_content_address', withEntry(good, { ca: `fixed:r:${formatSha256(good.narHash)}` })],
    ['bad_content_address', withEntry(good, { ca: 'fixed:nonsense' })],
    ['bad_content_address', withEntry(good, { ca: `fixed:r:${formatSha256(good.narHash)}\nSig: x` })],
    ['missing_reference', withEntry(good, { references: [sent('absent').path] })],
    ['bad_store_path', withEntry(good, { path: `/nix/store/${good.hash}-bad name` })],
    ['bad_store_dir', withEntry(good, { path: `/nix/../store/${good.path}` })],
    ['bad_key', withEntry(good, { signatures: ['no signature'] })],
  ];
  for (const [code, item] of cases) {
    await t.test(code, async (t) => {
      t.match(await origin.push([item]), [{ path: item.entry.path, result: 'refused', code, message: /./ }]);
      t.equal((await origin.request(`/main/${good.hash}.narinfo`)).status, 404);
      t.equal((await origin.request(`/main/nar/${good.narHash}.nar.zst`)).status, 404);
      t.same(origin.files(), NOTHING);
    });
  }
  t.match(await origin.push([good]), [{ result: 'published' }], 'none of that stands in the way');
});

t.test('one refused path leaves the others of its commit alone', async (t) => {
  const origin = await TestOrigin.start(t);
  const first = sent('first');
  const bad = { ...sent('bad'), file: Buffer.from('garbage') };
  const needsBad = sent('needs bad', { references: [bad.path] });
  const last = sent('last', { references: [first.path] });
  t.match(await origin.push([first, bad, needsBad, last]), [
    { result: 'published' },
    { result: 'refused', code: 'compression_corrupt' },
    { result: 'refused', code: 'missing_reference' },
    { result: 'published' },
  ]);
  t.same(origin.files(), { staging: [], blobs: blobNames(first, last) });
});

t.test('an entry is never overridden', async (t) => {
  const origin = await TestOrigin.start(t);
  const first = sent('first');
  const other = sent('other content', { path: first.path });
  await origin.push([first]);
  const before = await origin.request(`/main/${first.hash}.narinfo`);
  const present = { path: first.entry.path, result: 'present' };
  const kept = { ...present, keptNarHash: formatSha256(first.narHash) };
  t.same(await origin.push([first]), [present]);
  t.same(await origin.push([other]), [kept]);
  const neighbour = sent('neighbour');
  t.match(await origin.push([other, neighbour, first]), [kept, { result: 'published' }, present]);
  const after = await origin.request(`/main/${first.hash}.narinfo`);
  t.ok(after.body.equals(before.body));
  t.equal((await origin.request(`/main/nar/${other.narHash}.nar.zst`)).status, 404);
  t.same(origin.files(), { staging: [], blobs: blobNames(first, neighbour) });
});

t.test('of two with one path in one commit, the first stays', async (t) => {
  const origin = await TestOrigin.start(t);
  const first = sent('first');
  const other = sent('other content', { path: first.path });
  t.match(await origin.push([first, other]), [
    { result: 'published' },
    { result: 'present', keptNarHash: formatSha256(first.narHash) },
  ]);
  t.same(origin.files(), { staging: [], blobs: blobNames(first) });
});

t.test('pushes of one path at once publish it once', async (t) => {
  const origin = await TestOrigin.start(t);
  const one = sent(randomBytes(100_000));
  const results = (await Promise.all([1, 2, 3, 4].map(() => origin.push([one])))).flat();
  t.same(results.map(({ result }) => result).sort(), ['present', 'present', 'present', 'published']);
  t.same(origin.files(), { staging: [], blobs: blobNames(one) });
});

t.test('caches share a file, but not what they show', async (t) => {
  const origin = await TestOrigin.start(t);
  const { name: second } = await origin.createCache('second');
  const one = sent('shared');
  await origin.push([one]);
  const url = `nar/${one.narHash}.nar.zst`;
  t.equal((await origin.request(`/second/${url}`)).status, 404, 'known to the origin, not to this cache');
  // The same NAR under another path and compressed otherwise.
  const again = sent('shared');
  const params = { [constants.ZSTD_c_checksumFlag]: 1 };
  const nar = { ...again, file: zstdCompressSync(zstdDecompressSync(again.file), { params }) };
  t.notOk(nar.file.equals(one.file));
  const other = { ...nar, file: zstdCompressSync(Buffer.alloc(0)) };
  t.match(await origin.push([other], second), [{ result: 'refused' }], 'who has no NAR gets no entry');
  t.equal((await origin.request(`/second/${url}`)).status, 404);
  t.match(await origin.push([nar], second), [{ result: 'published' }]);
  t.ok((await origin.request(`/second/${url}`)).body.equals(one.file));
  t.same(origin.files(), { staging: [], blobs: blobNames(one) });
  const info = parseNarInfo((await origin.request(`/second/${nar.hash}.narinfo`)).body.toString());
  t.match(info, { fileHash: sha256(one.file), fileSize: one.file.length });
});

t.test('a cache holds the paths of one store', async (t) => {
  const origin = await TestOrigin.start(t);
  const elsewhere = sent('elsewhere');
  const moved = withEntry(elsewhere, { path: `/opt/store/${elsewhere.path}` });
  const mixed = await origin.push([sent('first'), moved]);
  t.match(mixed, [{ result: 'published' }, { result: 'refused', code: 'other_store_dir' }]);
  t.match(await origin.push([moved]), [{ result: 'refused', code: 'other_store_dir' }]);
  t.match((await origin.request('/main/nix-cache-info')).body.toString(), /^StoreDir: \/nix\/store\n/);
  t.equal(origin.files().blobs.length, 1);
});

t.test('a commit that breaks off publishes nothing and leaves nothing', async (t) => {
  const origin = await TestOrigin.start(t);
  const items = [sent('whole'), sent(randomBytes(300_000))];
  const body = await bodyOf(items);
  await sendAndHangUp(
    origin,
    body.subarray(0, body.length / 2),
    body.length,
    () => origin.files().staging.length > 0,
  );
  t.ok(await eventually(() => origin.files().staging.length === 0));
  t.same(origin.files(), NOTHING);
  t.same(
    await origin.client().missing(
      origin.main,
      items.map(({ hash }) => hash),
    ),
    items.map(({ hash }) => hash),
  );
  t.match(await origin.push(items), [{ result: 'published' }, { result: 'published' }]);
});

t.test('a commit whose sender does not wait for the answer leaves nothing half done', async (t) => {
  const origin = await TestOrigin.start(t);
  for (let i = 0; i < 5; i++) {
    const body = await bodyOf([sent(randomBytes(100_000))]);
    await sendAndHangUp(origin, body, body.length, () => origin.files().staging.length > 0);
  }
  t.ok(await eventually(() => origin.files().staging.length === 0));
});

t.test('what is no commit at all', async (t) => {
  const origin = await TestOrigin.start(t);
  const one = sent('one');
  const whole = await bodyOf([one]);
  const cases: [status: number, body: Buffer, type?: string][] = [
    [400, randomBytes(2048)],
    [400, whole.subarray(0, 700)],
    [400, whole.subarray(0, 1024)],
    [400, await bodyOf([{ ...one, entry: { ...one.entry, narSize: 0 } }])],
    [400, await bodyOf([{ ...one, entry: { ...one.entry, extra: 1 } as typeof one.entry }])],
    [415, whole, 'application/zip'],
    [415, Buffer.from('{}'), 'application/json'],
  ];
  for (const [status, body, type = COMMIT_TYPE] of cases) {
    const answer = await origin.request('/api/v1/caches/main/commit', {
      method: 'POST',
      headers: { ...origin.authorization(), 'content-type': type },
      body,
    });
    t.equal(answer.status, status);
    t.match(JSON.parse(answer.body.toString()), { status, code: /^[a-z_]+$/, title: /./ });
    t.same(origin.files(), NOTHING);
  }
});

function withEntry(item: Sent, entry: Partial<Sent['entry']>): Sent {
  return { ...item, entry: { ...item.entry, ...entry } };
}

function describe(nar: Buffer): Partial<Sent['entry']> {
  return { narHash: formatSha256(sha256(nar)), narSize: nar.length };
}

function blobNames(...items: readonly Sent[]): string[] {
  return items.map(({ narHash }) => `${narHash}.nar.zst`).sort();
}

async function bodyOf(items: readonly Sent[]): Promise<Buffer> {
  const { body } = encodeCommit(items.map(({ entry, file }) => ({ entry, nar: [file] })));
  return Buffer.concat(await Array.fromAsync<Buffer>(body));
}

/** Sends a part of a commit's body and cuts the connection once `arrived` holds. */
async function sendAndHangUp(
  origin: TestOrigin,
  body: Buffer,
  announced: number,
  arrived: () => boolean,
): Promise<void> {
  const { hostname, port } = new URL(origin.url);
  const socket = connect(Number(port), hostname);
  const head = [
    'POST /api/v1/caches/main/commit HTTP/1.1',
    'Host: origin',
    `Authorization: ${origin.authorization().authorization}`,
    `Content-Type: ${COMMIT_TYPE}`,
    `Content-Length: ${announced}`,
  ];
  socket.on('error', () => {});
  socket.write(`${head.join('\r\n')}\r\n\r\n`);
  socket.write(body);
  for (const end = Date.now() + 2000; !arrived() && Date.now() < end; ) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  socket.destroy();
}
