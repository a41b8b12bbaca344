import { randomBytes } from 'node:crypto';
import t from 'tap';
import { sent, TestOrigin } from '../support/origin.ts';

const one = sent(randomBytes(3 << 20));
const size = one.file.length;
const path = `nar/${one.narHash}.nar.zst`;

t.test('a NAR at both addresses of its cache', async (t) => {
  const origin = await TestOrigin.start(t, { domain: 'localhost' });
  t.match(await origin.push([one]), [{ result: 'published' }]);
  const { port } = new URL(origin.url);
  const addresses = [
    { prefix: '/main/', headers: {} },
    { prefix: '/', headers: { host: `main.localhost:${port}` } },
    { prefix: '/', headers: { host: 'MAIN.localhost' } },
  ];
  for (const { prefix, headers } of addresses) {
    await t.test(`${prefix} ${JSON.stringify(headers)}`, async (t) => {
      const get = (more = {}, method = 'GET') =>
        origin.request(prefix + path, { method, headers: { ...headers, ...more } });
      const shared = {
        'content-type': 'application/x-nix-nar',
        'accept-ranges': 'bytes',
        'cache-control': /public.*immutable/,
      };
      const whole = await get();
      t.equal(whole.status, 200);
      t.match(whole.headers, { ...shared, 'content-length': String(size) });
      t.ok(whole.body.equals(one.file));
      const head = await get({}, 'HEAD');
      t.match(head, { status: 200, headers: { ...shared, 'content-length': String(size) } });
      t.equal(head.body.length, 0);
      const info = await origin.request(`${prefix}nix-cache-info`, { headers });
      t.match(info.body.toString(), /^StoreDir: \/nix\/store\nWantMassQuery: 1\nPriority: 30\n$/);
      const narinfo = await origin.request(`${prefix}${one.hash}.narinfo`, { method: 'HEAD', headers });
      t.match(narinfo, { status: 200, headers: { 'content-length': /^[1-9]/ } });
    });
  }
  const elsewhere = await origin.request(`/${path}`, { headers: { host: 'other.localhost' } });
  t.equal(elsewhere.status, 404);
  t.equal((await origin.request(`/${path}`, { headers: { host: 'main.example' } })).status, 404);
});

t.test('ranges of a NAR', async (t) => {
  const origin = await TestOrigin.start(t);
  await origin.push([one]);
  const get = (headers: Record<string, string>, method = 'GET') =>
    origin.request(`/main/${path}`, { headers, method });
  const ranges: [header: string, start: number, end: number][] = [
    ['bytes=0-0', 0, 1],
    ['bytes=0-', 0, size],
    ['bytes=100-299', 100, 300],
    [`bytes=${size - 1}-`, size - 1, size],
    [`bytes=1048570-${size + 500}`, 1048570, size],
    ['bytes=-7', size - 7, size],
    [`bytes=-${size + 1}`, 0, size],
  ];
  for (const [range, start, end] of ranges) {
    const answer = await get({ range });
    t.equal(answer.status, 206, range);
    t.equal(answer.headers['content-range'], `bytes ${start}-${end - 1}/${size}`);
    t.equal(answer.headers['content-length'], String(end - start));
    t.ok(answer.body.equals(one.file.subarray(start, end)), range);
  }
  for (const range of [`bytes=${size}-`, 'bytes=-0', `bytes=${size + 5}-${size + 9}`]) {
    const answer = await get({ range });
    t.equal(answer.status, 416, range);
    t.equal(answer.headers['content-range'], `bytes */${size}`);
  }
  // Headers that mean nothing are as good as none.
  for (const range of ['bytes=5-2', 'bytes=0-1,5-6', 'lines=1-2', 'bytes=x', `bytes=${'9'.repeat(40)}-`]) {
    const answer = await get({ range });
    t.equal(answer.status, 200, range);
    t.ok(answer.body.equals(one.file));
  }
  t.equal((await get({ range: 'bytes=0-0', 'if-range': '"x"' })).status, 200);
  t.match(await get({ range: 'bytes=0-9' }, 'HEAD'), { status: 206, headers: { 'content-length': '10' } });
});

t.test('many readers at once, some of whom go away', async (t) => {
  const origin = await TestOrigin.start(t);
  await origin.push([one]);
  const url = `${origin.url}/main/${path}`;
  const readers = Array.from({ length: 20 }, async (_, i) => {
    const response = await fetch(url);
    if (i % 2 === 0) return response.body?.cancel();
    t.ok(Buffer.from(await response.arrayBuffer()).equals(one.file));
  });
  await Promise.all(readers);
  t.equal((await origin.request('/healthz')).status, 200);
});
