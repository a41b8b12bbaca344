import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { request } from 'undici';
import { get, startChain, until } from '../support/agent.ts';
import type { SyntheticPath } from '../support/synthetic-cache.ts';

const MB = 1 << 20;

t.test('a NAR comes through whole, and from then on out of the local cache', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  for (const size of [1, 65_000, 66_000, 3 * MB]) {
    for (const compression of ['none', 'zstd'] as const) {
      const path = cache.add(size, { compression });
      for (const time of ['first', 'second']) {
        const answer = await agent.get(path.agentUrl);
        const name = `${size} bytes, ${compression}, ${time} time`;
        t.equal(answer.status, 200, name);
        t.ok(answer.body.equals(path.file), name);
        t.equal(answer.headers['content-length'], String(path.file.length), name);
        t.equal(answer.headers['content-type'], 'application/x-nix-nar', name);
        t.equal(answer.headers['accept-ranges'], 'bytes', name);
        t.match(answer.headers['cache-control'], /immutable/, name);
        t.notOk('content-encoding' in answer.headers, name);
        await until(() => agent.arriving().length === 0);
      }
      t.equal(upstream.requests.filter(({ url }) => url.endsWith(path.info.url)).length, 1);
    }
  }
  t.equal(agent.kept().length, 8);
});

t.test('twenty clients at once cause one download and get the same bytes', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(6 * MB, { compression: 'zstd' });
  upstream.fault = ({ url }) => (url.includes('/nar/') ? { slow: 2 } : undefined);
  const answers = await Promise.all(Array.from({ length: 20 }, () => agent.get(path.agentUrl)));
  for (const answer of answers) {
    t.equal(answer.status, 200);
    t.ok(answer.body.equals(path.file));
  }
  t.equal(upstream.requests.filter(({ url }) => url.includes('/nar/')).length, 1);
});

t.test('a client that does not read holds up neither the download nor the others', async (t) => {
  const { cache, agent } = await startChain(t);
  const path = cache.add(24 * MB);
  const { hostname, port } = new URL(agent.url);
  const lazy = connect(Number(port), hostname);
  t.teardown(() => lazy.destroy());
  lazy.pause();
  lazy.write(`GET /${path.agentUrl} HTTP/1.1\r\nHost: x\r\n\r\n`);
  t.ok((await agent.get(path.agentUrl)).body.equals(path.file));
  await until(() => agent.kept().length === 1);
  let received = 0;
  lazy.on('data', (chunk) => {
    received += chunk.length;
  });
  lazy.resume();
  await until(() => received > path.file.length);
});

t.test('a client that goes away does not stop the download', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(4 * MB);
  upstream.fault = ({ url }) => (url.includes('/nar/') ? { slow: 5 } : undefined);
  const { body } = await request(`${agent.url}/${path.agentUrl}`);
  body.on('error', () => {});
  body.destroy();
  await until(() => agent.kept().length === 1);
  t.ok((await agent.get(path.agentUrl)).body.equals(path.file));
  t.equal(upstream.requests.filter(({ url }) => url.includes('/nar/')).length, 1);
});

t.test('an upstream that names no length', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(2 * MB);
  upstream.fault = ({ url }) => (url.includes('/nar/') ? { chunked: true } : undefined);
  const answer = await agent.get(path.agentUrl);
  t.ok(answer.body.equals(path.file));
  t.equal(answer.headers['content-length'], String(path.file.length), 'the narinfo says it');
});

t.test('ranges, of a kept NAR and of one that is arriving', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  upstream.fault = ({ url }) => (url.includes('/nar/') ? { slow: 2 } : undefined);
  const check = async (t: Test, path: SyntheticPath) => {
    const { length } = path.file;
    const cases: [string, number, number][] = [
      ['bytes=0-', 0, length],
      ['bytes=0-0', 0, 1],
      ['bytes=5-70000', 5, 70_001],
      [`bytes=${length - 1}-`, length - 1, length],
      ['bytes=-100', length - 100, length],
      [`bytes=100-${length + 5}`, 100, length],
    ];
    await Promise.all(
      cases.map(async ([range, start, end]) => {
        const answer = await agent.get(path.agentUrl, { range });
        t.equal(answer.status, 206, range);
        t.equal(answer.headers['content-range'], `bytes ${start}-${end - 1}/${length}`, range);
        t.equal(answer.headers['content-length'], String(end - start), range);
        t.ok(answer.body.equals(path.file.subarray(start, end)), range);
      }),
    );
    for (const range of [`bytes=${length}-`, 'bytes=-0']) {
      const answer = await agent.get(path.agentUrl, { range });
      t.equal(answer.status, 416, range);
      t.equal(answer.headers['content-range'], `bytes */${length}`, range);
    }
    for (const range of ['bytes=0-1,5-6', 'lines=1-2', 'bytes=', 'bytes=-', 'bytes=9-3', 'bytes=a-']) {
      const answer = await agent.get(path.agentUrl, { range });
      t.equal(answer.status, 200, range);
      t.ok(answer.body.equals(path.file), range);
    }
    const conditional = await agent.get(path.agentUrl, { range: 'bytes=5-', 'if-range': '"x"' });
    t.equal(conditional.status, 200);
  };
  const path = cache.add(2 * MB);
  await t.test('arriving', (t) => check(t, path));
  await until(() => agent.kept().length === 1);
  await t.test('kept', (t) => check(t, path));
  t.equal(upstream.requests.filter(({ url }) => url.includes('/nar/')).length, 1);
});

t.test('HEAD says what GET would, and fetches nothing', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(100_000);
  const check = async () => {
    const head = await agent.get(path.agentUrl, {}, 'HEAD');
    t.equal(head.status, 200);
    t.equal(head.headers['content-length'], String(path.file.length));
    t.equal(head.headers['accept-ranges'], 'bytes');
  };
  await check();
  t.equal(upstream.requests.filter(({ url }) => url.includes('/nar/')).length, 0);
  await agent.get(path.agentUrl);
  await check();
  t.equal((await agent.get(path.agentUrl.replace(/.{3}\.nar/, '000.nar'), {}, 'HEAD')).status, 404);
});

t.test('the address of a NAR is found again by an agent that remembers nothing', async (t) => {
  const { cache, agent } = await startChain(t);
  const path = cache.add(100_000, { compression: 'zstd' });
  t.ok((await agent.get(path.agentUrl)).body.equals(path.file), 'though no narinfo was asked for');
  const other = cache.add(10);
  const wrong = `nar/${path.hash}-${other.info.narHash}.nar.zst`;
  t.equal((await agent.get(wrong)).status, 404, 'the hash must be the one that is signed');
});

t.test('a second upstream stands in for one that has lost the NAR', async (t) => {
  const first = await startChain(t);
  const path = first.cache.add(100_000);
  const second = await startChain(t);
  const { key } = first.cache;
  second.cache.add(0, { hash: path.hash, contents: path.file.subarray(96, 96 + 100_000), key });
  const upstreams = [
    { url: first.upstream.url, publicKeys: [key.publicKey.text], priority: 1 },
    { url: second.upstream.url, publicKeys: [key.publicKey.text], priority: 2 },
  ];
  await first.agent.restart({ upstreams });
  first.upstream.fault = ({ url }) => (url.includes('/nar/') ? { status: 404 } : undefined);
  t.ok((await first.agent.get(path.agentUrl)).body.equals(path.file));
});

t.test('connections stay open between requests', async (t) => {
  const { agent } = await startChain(t);
  const answer = await get(`${agent.url}/nix-cache-info`);
  t.match(answer.headers['keep-alive'], /timeout=120/);
});
