import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { startAgent } from '../../agent/agent.ts';
import { generateSecretKey } from '../../nix/keys.ts';
import { parseNarInfo, renderNarInfo } from '../../nix/narinfo.ts';
import { AgentUnderTest, startChain, temporaryDirectory, until } from '../support/agent.ts';
import { SyntheticCache } from '../support/synthetic-cache.ts';
import { startUpstream } from '../support/upstream.ts';

t.test(
  'nix-cache-info is answered from memory and names the store directory the upstreams agree on',
  async (t) => {
    const { agent, upstream } = await startChain(t);
    await until(() => upstream.requests.length > 0);
    await until(() => agent.log.length > 0);
    let text = '';
    for (let tries = 0; tries < 100 && !text.startsWith('StoreDir'); tries++) {
      const answer = await agent.get('nix-cache-info');
      t.equal(answer.status, 200);
      t.equal(answer.headers['content-type'], 'text/x-nix-cache-info');
      text = answer.body.toString();
    }
    t.equal(text, 'StoreDir: /nix/store\nWantMassQuery: 1\nPriority: 10\n');

    await upstream.close();
    await agent.restart();
    t.equal((await agent.get('nix-cache-info')).body.toString(), text, 'remembered over a restart');
  },
);

t.test('nix-cache-info waits for no upstream and names no store directory nobody confirmed', async (t) => {
  const cache = new SyntheticCache(temporaryDirectory(t));
  const upstream = await startUpstream(cache.dir);
  t.teardown(() => upstream.close());
  upstream.fault = () => ({ delay: 3_000 });
  const upstreams = [{ url: upstream.url, publicKeys: [cache.publicKey] }];
  const agent = await new AgentUnderTest(t, { upstreams }).start();
  const before = performance.now();
  const answer = await agent.get('nix-cache-info');
  t.ok(performance.now() - before < 1_000);
  t.equal(answer.body.toString(), 'WantMassQuery: 1\nPriority: 10\n');
});

t.test('a narinfo keeps its fields and signatures, with an address of the agent for its NAR', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(1_000, { compression: 'zstd' });
  const answer = await agent.get(`${path.hash}.narinfo`);
  t.equal(answer.status, 200);
  t.equal(answer.headers['content-type'], 'text/x-nix-narinfo');
  t.equal(answer.body.toString(), renderNarInfo({ ...path.info, url: path.agentUrl }));

  const head = await agent.get(`${path.hash}.narinfo`, {}, 'HEAD');
  t.equal(head.status, 200);
  t.equal(head.headers['content-length'], String(answer.body.length));
  t.equal(head.body.length, 0);

  await upstream.close();
  t.same((await agent.get(`${path.hash}.narinfo`)).body, answer.body, 'kept while the upstream is gone');
  await agent.restart();
  t.same((await agent.get(`${path.hash}.narinfo`)).body, answer.body, 'and over a restart');
});

t.test('many clients that ask for one path cause one question upstream', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(1_000);
  upstream.fault = ({ url }) => (url.endsWith('.narinfo') ? { delay: 200 } : undefined);
  const answers = await Promise.all(Array.from({ length: 20 }, () => agent.get(`${path.hash}.narinfo`)));
  t.ok(answers.every((answer) => answer.status === 200));
  t.equal(upstream.requests.filter(({ url }) => url.endsWith('.narinfo')).length, 1);
});

t.test('an absent path is asked for again a moment later', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(1_000);
  upstream.fault = ({ url }) => (url.endsWith('.narinfo') ? { status: 404 } : undefined);
  t.equal((await agent.get(`${path.hash}.narinfo`)).status, 404);
  t.equal((await agent.get(`${path.hash}.narinfo`)).status, 404);
  t.equal(upstream.requests.filter(({ url }) => url.endsWith('.narinfo')).length, 1, 'remembered briefly');
  upstream.fault = () => undefined;
  await new Promise((resolve) => setTimeout(resolve, 2_100));
  t.equal((await agent.get(`${path.hash}.narinfo`)).status, 200);
});

t.test('a narinfo that cannot be believed is refused, and the log says why, once', async (t) => {
  const { cache, agent } = await startChain(t);
  const stranger = generateSecretKey('stranger-1');
  const impostor = generateSecretKey('synthetic-1');
  const honest = cache.add(100);
  const other = cache.add(100);
  const cases: [string, string, RegExp][] = [
    ['signed by a key nobody trusts', cache.add(100, { key: stranger }).hash, /no valid signature/],
    ['signed by another key of the same name', cache.add(100, { key: impostor }).hash, /no valid signature/],
  ];
  const write = (name: string, text: string, reason: RegExp) => {
    const { hash } = cache.add(100);
    writeFileSync(join(cache.dir, `${hash}.narinfo`), text);
    cases.push([name, hash, reason]);
  };
  const text = renderNarInfo(honest.info);
  write('about another path', text, /another path/);
  write('a web page', '<html>Welcome</html>\n', /not a 'Name: value' line/);
  write('empty', '', /does not end with a newline/);
  write('cut short', text.slice(0, 100), /corrupt/);
  const tampered = cache.add(100);
  writeFileSync(
    join(cache.dir, `${tampered.hash}.narinfo`),
    renderNarInfo({ ...tampered.info, narHash: other.info.narHash }),
  );
  cases.push(['with another NAR hash than was signed', tampered.hash, /no valid signature/]);
  for (const [name, hash, reason] of cases) {
    const answer = await agent.get(`${hash}.narinfo`);
    t.equal(answer.status, 404, name);
    t.equal(answer.body.toString(), 'not found\n', name);
    const lines = agent.log.filter((line) => line.hash === hash);
    t.equal(lines.length, 1, name);
    t.match(lines[0]?.reason, reason, name);
  }
  await new Promise((resolve) => setTimeout(resolve, 2_100));
  const hash = cases[0]?.[1] as string;
  await agent.get(`${hash}.narinfo`);
  t.equal(agent.log.filter((line) => line.hash === hash).length, 1, 'not said again');
});

t.test('the preferred of two upstreams wins, but a slow one is not waited for', async (t) => {
  const near = new SyntheticCache(temporaryDirectory(t));
  const far = new SyntheticCache(temporaryDirectory(t), near.key);
  const path = far.add(1_000, { compression: 'zstd' });
  const same = { hash: path.hash, contents: path.file.subarray(0, 100) };
  const preferred = near.add(0, same);
  const [nearUpstream, farUpstream] = [await startUpstream(near.dir), await startUpstream(far.dir)];
  t.teardown(() => Promise.all([nearUpstream.close(), farUpstream.close()]));
  const upstreams = [
    { url: farUpstream.url, publicKeys: [far.publicKey], priority: 50 },
    { url: nearUpstream.url, publicKeys: [near.publicKey], priority: 20 },
  ];

  nearUpstream.fault = () => ({ delay: 100 });
  const patient = await new AgentUnderTest(t, { upstreams }).start();
  const answer = parseNarInfo((await patient.get(`${path.hash}.narinfo`)).body.toString());
  t.equal(answer.narHash, preferred.info.narHash);

  nearUpstream.fault = () => ({ delay: 3_000 });
  const hurried = await new AgentUnderTest(t, { upstreams }).start();
  const before = performance.now();
  const second = parseNarInfo((await hurried.get(`${path.hash}.narinfo`)).body.toString());
  t.ok(performance.now() - before < 1_500);
  t.equal(second.narHash, path.info.narHash);
});

t.test('what was kept under other keys is asked for again', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(100);
  t.equal((await agent.get(`${path.hash}.narinfo`)).status, 200);
  const { text } = generateSecretKey('other-1').publicKey;
  await agent.restart({ upstreams: [{ url: upstream.url, publicKeys: [text] }] });
  t.equal((await agent.get(`${path.hash}.narinfo`)).status, 404);
});

t.test('everything else is 404 or 405, whatever it looks like', async (t) => {
  const { cache, agent } = await startChain(t);
  const { hash, agentUrl } = cache.add(100);
  const home = await agent.get('');
  t.equal(home.status, 200);
  t.match(home.body.toString(), /bcache agent/);
  for (const path of [
    'x',
    'x.narinfo',
    `${hash}.narinfo/`,
    `${hash.toUpperCase()}.narinfo`,
    `${hash.slice(1)}.narinfo`,
    `${hash.slice(1)}e.narinfo`,
    `${hash}.ls`,
    '%2e%2e%2fetc%2fpasswd',
    'nar/..%2f..%2fcache%2findex.sqlite',
    'nar/%00',
    'nar/',
    '%',
    '%zz.narinfo',
    `${'%41'.repeat(300)}.narinfo`,
    agentUrl.replace('.nar', '.nar.rar'),
    agentUrl.replace('.nar', '.nar.xz'),
    `nar/${agentUrl.slice(4).replace('-', '_')}`,
    `log/${hash}-x.drv?y=%`,
    `${'a'.repeat(5_000)}`,
  ]) {
    const answer = await agent.get(path);
    t.equal(answer.status, 404, path.slice(0, 80));
    t.ok(answer.body.length < 100);
    t.match(answer.headers['content-type'], /^text\/plain/);
    t.equal((await agent.get(path, {}, 'HEAD')).status, 404);
  }
  for (const method of ['PUT', 'POST', 'DELETE', 'PATCH', 'OPTIONS'] as const) {
    const answer = await agent.get(`${hash}.narinfo`, { 'content-type': 'text/x-nix-narinfo' }, method);
    t.equal(answer.status, 405, method);
  }
  t.equal((await agent.get(`${hash}.narinfo`)).status, 200, 'and it still serves');
});

t.test('a port that is taken is said so', async (t) => {
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  t.teardown(() => other.close());
  const { port } = other.address() as { port: number };
  await t.rejects(startAgent({ stateDir: temporaryDirectory(t), host: '127.0.0.1', port, upstreams: [] }), {
    code: 'port_taken',
    hint: /another port/,
  });
});

t.test('credentials go to the upstream, and to no log', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(100);
  const url = upstream.url.replace('//', '//reader:s3cret%21@');
  await agent.restart({ upstreams: [{ url, publicKeys: [cache.publicKey] }] });
  upstream.fault = ({ url }) => (url.endsWith('.narinfo') ? { status: 401 } : undefined);
  upstream.requests.length = 0;
  t.equal((await agent.get(`${path.hash}.narinfo`)).status, 404);
  const basic = `Basic ${Buffer.from('reader:s3cret!').toString('base64')}`;
  t.equal(upstream.requests.find((request) => request.url.endsWith('.narinfo'))?.authorization, basic);
  t.notMatch(JSON.stringify(agent.log), /s3cret|reader:/);
  t.match(agent.logged('an upstream could not be asked')[0], { upstream: upstream.url, reason: /401/ });
});

t.test('a login is not sent to another host that a narinfo points to', async (t) => {
  const { cache, upstream } = await startChain(t);
  const other = await startUpstream(cache.dir);
  t.teardown(() => other.close());
  const path = cache.add(100);
  const pointing = { ...path.info, url: `${other.url}/${path.info.url}` };
  writeFileSync(join(cache.dir, `${path.hash}.narinfo`), renderNarInfo(pointing));
  const login = { user: 'reader', password: 's3cret' };
  const upstreams = [{ url: upstream.url, publicKeys: [cache.publicKey], login }];
  const agent = await new AgentUnderTest(t, { upstreams }).start();
  t.same((await agent.get(path.agentUrl)).body, path.file);
  t.match(other.requests, [{ authorization: undefined }]);
});
