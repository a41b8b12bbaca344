import t from 'tap';
import { sent, TestOrigin } from '../support/origin.ts';

t.test('paths that lead nowhere', async (t) => {
  const origin = await TestOrigin.start(t, { domain: 'localhost' });
  const one = sent('one');
  await origin.push([one]);
  const narinfo = `${one.hash}.narinfo`;
  const nar = `${one.narHash}.nar.zst`;
  const paths = [
    '/main/../catalogue.sqlite',
    '/main/nar/../../catalogue.sqlite',
    '/main/nar/..%2f..%2fcatalogue.sqlite',
    '/main/nar/%2e%2e/%2e%2e/catalogue.sqlite',
    '/main/nar/..%5c..%5ccatalogue.sqlite',
    `/main/nar/%2e%2e%2f${nar}`,
    `/main/nar/${nar}%00`,
    `/main/nar/${nar}/`,
    `/main/nar/${nar.toUpperCase()}`,
    `/main/nar/${nar.slice(1)}`,
    `/main/nar/z${nar.slice(1)}`,
    `/main/nar/e${nar.slice(1)}`,
    '/main/nar/.nar.zst',
    '/main/nar/',
    `/main/nar/${'a'.repeat(5000)}.nar.zst`,
    `/main/${narinfo.slice(1)}`,
    `/main/e${narinfo.slice(1)}`,
    `/main/${narinfo.toUpperCase()}`,
    `/main/${narinfo}%0a`,
    '/main/%',
    '/main/%zz.narinfo',
    '/main/%ff%fe.narinfo',
    '/main/%00',
    '/%2e%2e/%2e%2e/etc/passwd',
    '/../../etc/passwd',
    '/api/nix-cache-info',
    '/MAIN/nix-cache-info',
    '/__proto__/nix-cache-info',
    `/__proto__/${narinfo}`,
    `/${'m'.repeat(400)}/nix-cache-info`,
    `/main%2f${narinfo}`,
  ];
  for (const path of paths) {
    for (const headers of [{}, { host: 'main.localhost' }, { host: '..localhost' }]) {
      const answer = await origin.request(path, { headers });
      t.ok(answer.status >= 400 && answer.status < 500, `${answer.status} ${path.slice(0, 80)}`);
      t.ok(answer.body.length < 7000);
      t.notMatch(answer.body.toString(), origin.stateDir);
    }
  }
  const hosts = [
    'main.localhost.',
    '.localhost',
    'a.b.localhost',
    `${'m'.repeat(300)}.localhost`,
    '%00.localhost',
  ];
  for (const host of hosts) {
    t.equal((await origin.request(`/${narinfo}`, { headers: { host } })).status, 404, host.slice(0, 40));
  }
  t.equal((await origin.request(`/main/${narinfo}`)).status, 200);
});

t.test('wrong methods and huge headers', async (t) => {
  const origin = await TestOrigin.start(t);
  const one = sent('one');
  await origin.push([one]);
  const paths = [
    `/main/${one.hash}.narinfo`,
    `/main/nar/${one.narHash}.nar.zst`,
    '/main/nix-cache-info',
    '/',
  ];
  for (const path of paths) {
    for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'PROPFIND']) {
      const { status } = await origin.request(path, { method, headers: origin.authorization() });
      t.ok(status >= 400 && status < 500, `${status} ${method} ${path}`);
    }
  }
  const huge = { 'x-huge': 'x'.repeat(100_000) };
  t.equal((await origin.request('/main/nix-cache-info', { headers: huge })).status, 431);
  t.equal((await origin.request(`/main/${one.hash}.narinfo`)).status, 200);
});

t.test('the API answers what it does not like with a problem', async (t) => {
  const origin = await TestOrigin.start(t);
  const json = { 'content-type': 'application/json' };
  const hash = '1'.repeat(32);
  const upload = '/api/v1/caches/main/uploads';
  const cases: [status: number, method: string, path: string, body?: string][] = [
    [404, 'GET', '/api/v1/nothing'],
    [404, 'DELETE', '/api/v1/user'],
    [404, 'GET', '/api/v1/caches/..%2f..'],
    [404, 'GET', '/api/v1/caches/%00'],
    [404, 'GET', '/api/v1/caches/__proto__'],
    [400, 'GET', `/api/v1/caches/${'m'.repeat(101)}`],
    [400, 'GET', '/api/v1/caches/%zz'],
    [400, 'POST', '/api/v1/caches/main/missing', '{'],
    [400, 'POST', '/api/v1/caches/main/missing', '{}'],
    [400, 'POST', '/api/v1/caches/main/missing', '{"hashes":["../../etc/passwd"]}'],
    [400, 'POST', '/api/v1/caches/main/missing', `{"hashes":["${hash.replace('1', 'e')}"]}`],
    [400, 'POST', '/api/v1/caches/main/missing', '{"__proto__":{},"hashes":[]}'],
    [413, 'POST', '/api/v1/caches/main/missing', `{"hashes":["${'1'.repeat(9_000_000)}"]}`],
    [400, 'POST', upload, JSON.stringify({ path: `${hash}-..`, narHash: `sha256:${'0'.repeat(52)}` })],
    [400, 'POST', upload, JSON.stringify({ path: `${hash}-a/b`, narHash: `sha256:${'0'.repeat(52)}` })],
    [400, 'POST', upload, JSON.stringify({ path: `${hash}-a`, narHash: `sha256:${'z'.repeat(52)}` })],
    [400, 'PUT', `${upload}/../parts/0`.replace('..', '%2e%2e'), '{}'],
    [400, 'PUT', `${upload}/00000000-0000-4000-8000-000000000000/parts/-1`, '{}'],
    [400, 'PUT', `${upload}/00000000-0000-4000-8000-000000000000/parts/1e99`, '{}'],
    [400, 'DELETE', `${upload}/catalogue.sqlite`],
  ];
  for (const [status, method, path, body] of cases) {
    const headers = { ...origin.authorization(), ...(body === undefined ? {} : json) };
    const answer = await origin.request(path, { method, headers, ...(body === undefined ? {} : { body }) });
    const what = `${method} ${path} ${body?.slice(0, 60) ?? ''}`;
    t.equal(answer.status, status, what);
    t.match(answer.headers['content-type'], /^application\/problem\+json/, what);
    const problem = JSON.parse(answer.body.toString() || '{}');
    t.match(problem, { type: 'about:blank', status, code: /^[a-z0-9_]+$/, title: /./ }, what);
    t.notMatch(answer.body.toString(), origin.stateDir);
  }
});
