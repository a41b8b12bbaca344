import { Writable } from 'node:stream';
import { pino } from 'pino';
import t from 'tap';
import { newToken } from '../../server/auth.ts';
import { sent, TestOrigin } from '../support/origin.ts';

t.test('the API wants a token that is valid', async (t) => {
  const origin = await TestOrigin.start(t);
  const expired = await origin.createToken(['read', 'push'], { expiresAt: new Date(Date.now() - 1000) });
  const future = await origin.createToken(['read'], { expiresAt: new Date(Date.now() + 60_000) });
  const calls = (token: string | null): (() => Promise<unknown>)[] => {
    const client = origin.client(token);
    const { entry, file, path, narHash } = sent('one');
    return [
      () => client.user(),
      () => client.cache(origin.main),
      () => client.missing(origin.main, []),
      () => client.openUpload(origin.main, path, narHash),
      () => client.dropUpload(origin.main, '00000000-0000-4000-8000-000000000000'),
      () => Array.fromAsync(client.commit(origin.main, [{ entry, nar: [file] }])),
    ];
  };
  for (const [token, code] of [
    [null, 'no_token'],
    [newToken(), 'bad_token'],
    ['', 'bad_token'],
    [expired, 'bad_token'],
  ] as const) {
    for (const call of calls(token))
      await t.rejects(call(), { status: 401, code, hint: /BCACHE_AUTH_TOKEN/ });
  }
  t.match(await origin.client(future).user(), {
    name: 'tester',
    token: { name: 'test', permissions: ['read'], caches: ['*'], expiresAt: /^\d{4}-/ },
  });
  t.same(origin.files(), { staging: [], blobs: [] });
});

t.test('a token allows what it was made for', async (t) => {
  const origin = await TestOrigin.start(t);
  const { name: secret } = await origin.createCache('secret', false);
  const one = sent('one');
  const commit = (token: string, cache = origin.main) =>
    Array.fromAsync(origin.client(token).commit(cache, [{ entry: one.entry, nar: [one.file] }]));
  const forbidden = { status: 403, code: 'forbidden' };
  const unknown = { status: 404, code: 'unknown_cache' };

  const reader = await origin.createToken(['read']);
  await t.rejects(commit(reader), { ...forbidden, hint: /push/ });
  await t.rejects(commit(reader, secret), forbidden, 'it may know of the cache');
  await t.rejects(origin.client(reader).missing(origin.main, []), forbidden);
  t.match(await origin.client(reader).cache(secret), { name: 'secret', public: false });

  const mainOnly = await origin.createToken(['read', 'push'], { caches: ['main'] });
  await t.rejects(origin.client(mainOnly).cache(secret), unknown);
  await t.rejects(commit(mainOnly, secret), unknown);
  t.match(await commit(mainOnly), [{ result: 'published' }]);

  const secretOnly = await origin.createToken(['read', 'push'], { caches: ['secret'] });
  await t.rejects(commit(secretOnly), forbidden, 'everybody may know of a public cache');
  t.match(await commit(secretOnly, secret), [{ result: 'published' }]);
  t.same(
    await origin
      .client(mainOnly)
      .cache('absent' as typeof secret)
      .catch((error) => error.message.replace('absent', 'secret')),
    await origin
      .client(mainOnly)
      .cache(secret)
      .catch((error) => error.message),
    'a cache one may not read is not to be told from none',
  );
});

t.test('a private cache is there only for those who may read it', async (t) => {
  const origin = await TestOrigin.start(t, { domain: 'localhost' });
  const { name } = await origin.createCache('secret', false);
  const one = sent('one');
  await origin.push([one], name);
  const reader = await origin.createToken(['read'], { caches: ['secret'] });
  const outsider = await origin.createToken(['read'], { caches: ['main'] });
  const pusher = await origin.createToken(['push'], { caches: ['secret'] });
  const expired = await origin.createToken(['read'], { expiresAt: new Date(0) });
  const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
  const basic = (login: string) => ({ authorization: `Basic ${Buffer.from(login).toString('base64')}` });
  const files = ['nix-cache-info', `${one.hash}.narinfo`, `nar/${one.narHash}.nar.zst`];
  const refused = [
    {},
    bearer(newToken()),
    bearer(outsider),
    bearer(pusher),
    bearer(expired),
    basic(`me:${outsider}`),
    basic(`${reader}:`),
    { authorization: 'Basic' },
    { authorization: 'Basic %%%' },
    { authorization: 'Bearer' },
    { authorization: reader },
  ];
  const allowed = [
    bearer(reader),
    basic(`me:${reader}`),
    basic(`:${reader}`),
    { authorization: `bearer ${reader}` },
  ];
  for (const file of files) {
    const none = await origin.request(`/absent/${file}`);
    for (const [path, host] of [
      [`/secret/${file}`, {}],
      [`/${file}`, { host: 'secret.localhost' }],
    ] as const) {
      for (const method of ['GET', 'HEAD']) {
        for (const headers of refused) {
          const answer = await origin.request(path, { method, headers: { ...host, ...headers } });
          t.equal(answer.status, 404, `${method} ${path} ${JSON.stringify(headers)}`);
          if (method === 'GET') t.same(answer.body, none.body);
        }
        for (const headers of allowed) {
          const answer = await origin.request(path, { method, headers: { ...host, ...headers } });
          t.equal(answer.status, 200, `${method} ${path}`);
          t.notMatch(answer.headers['cache-control'] ?? '', /public/);
        }
      }
    }
  }
});

t.test('no secret comes into the log', async (t) => {
  let log = '';
  const stream = new Writable({
    write(chunk, _encoding, done) {
      log += chunk;
      done();
    },
  });
  const origin = await TestOrigin.start(t, { logger: pino({ level: 'trace' }, stream) });
  const token = await origin.createToken(['read', 'push']);
  const { name } = await origin.createCache('secret', false);
  const [key] = await origin.running.catalogue.signingKeys(1);
  const headers = { authorization: `Bearer ${token}` };
  const basic = { authorization: `Basic ${Buffer.from(`me:${token}`).toString('base64')}` };
  for (const path of [
    '/api/v1/user',
    '/api/v1/caches/secret',
    '/secret/nix-cache-info',
    '/absent/x',
    '/%zz',
  ]) {
    for (const credentials of [headers, basic]) await origin.request(path, { headers: credentials });
  }
  const one = sent('one');
  await origin.push([one, { ...one, file: Buffer.from('garbage') }], name);
  // A failure of the origin's own, which is logged in full.
  origin.running.catalogue.missing = () => Promise.reject(new Error('out of order'));
  await t.rejects(origin.client(token).missing(origin.main, []), { status: 500, code: 'internal_error' });
  t.match(log, /out of order/, 'the log is seen');
  const secrets = [token, Buffer.from(`me:${token}`).toString('base64'), key?.exportText() as string];
  for (const secret of secrets) t.notOk(log.includes(secret));
});
