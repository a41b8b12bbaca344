import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { zstdCompressSync } from 'node:zlib';
import t from 'tap';
import { request } from 'undici';
import { encodeBase32 } from '../../nix/base32.ts';
import { contentAddressedPath } from '../../nix/content-address.ts';
import { renderNarInfo } from '../../nix/narinfo.ts';
import { hashPart } from '../../nix/store-path.ts';
import { type AgentUnderTest, startChain, temporaryDirectory, until } from '../support/agent.ts';
import type { SyntheticPath } from '../support/synthetic-cache.ts';
import type { Fault, UpstreamRequest } from '../support/upstream.ts';

const MB = 1 << 20;

const onNar =
  (fault: Fault) =>
  ({ url }: UpstreamRequest) =>
    url.includes('/nar/') ? fault : undefined;

/** What a client gets that may be cut off: the bytes, and whether they ended as they should. */
async function download(
  agent: AgentUnderTest,
  path: SyntheticPath,
): Promise<{ whole: boolean; body: Buffer }> {
  const { statusCode, body } = await request(`${agent.url}/${path.agentUrl}`);
  if (statusCode !== 200) throw new Error(`status ${statusCode}`);
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of body) chunks.push(chunk);
    return { whole: true, body: Buffer.concat(chunks) };
  } catch {
    return { whole: false, body: Buffer.concat(chunks) };
  }
}

t.test('whatever an upstream does to a narinfo, the answer is 404', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const faults: Fault[] = [
    ...[400, 401, 403, 404, 407, 410, 429, 500, 502, 503, 504].map((status) => ({ status })),
    { body: '<html>please log in</html>' },
    { body: '' },
    { body: `StorePath: ${'x'.repeat(5 * MB)}\n` },
    { cutAt: 50 },
    { delay: 10_000 },
  ];
  await Promise.all(
    faults.map(async (fault) => {
      const { hash } = cache.add(100);
      const normal = upstream.fault;
      upstream.fault = (asked) => (asked.url.includes(hash) ? fault : normal(asked));
      const before = performance.now();
      const answer = await agent.get(`${hash}.narinfo`);
      t.equal(answer.status, 404, JSON.stringify(fault).slice(0, 60));
      t.ok(performance.now() - before < 6_000, 'in time');
    }),
  );
  await upstream.close();
  t.equal((await agent.get(`${cache.add(100).hash}.narinfo`)).status, 404, 'refused');
});

t.test('a NAR that no upstream sends is 404, and none is held against the next try', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(MB);
  await agent.get(`${path.hash}.narinfo`);
  for (const status of [400, 401, 500, 503]) {
    upstream.fault = onNar({ status });
    t.equal((await agent.get(path.agentUrl)).status, 404, String(status));
  }
  upstream.fault = () => undefined;
  t.ok((await agent.get(path.agentUrl)).body.equals(path.file));
});

t.test('an upstream that has lost a NAR is asked for the narinfo anew', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(MB);
  t.equal((await agent.get(`${path.hash}.narinfo`)).status, 200);
  upstream.fault = () => ({ status: 404 });
  t.equal((await agent.get(path.agentUrl)).status, 404);
  t.equal((await agent.get(`${path.hash}.narinfo`)).status, 404);
});

t.test('a wrong byte cuts the connection, keeps nothing, and ends the tries', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  for (const compression of ['none', 'zstd'] as const) {
    for (const flipAt of [0, 100, 2 * MB, -1]) {
      const name = `${compression}, byte ${flipAt}`;
      const path = cache.add(3 * MB, { compression });
      upstream.fault = onNar({ flipAt });
      upstream.requests.length = 0;
      const answers = await Promise.all([1, 2, 3].map(() => download(agent, path).catch(() => undefined)));
      for (const answer of answers) {
        t.notOk(answer?.whole, name);
        t.ok((answer?.body.length ?? 0) <= path.file.length - (64 << 10), `${name}: the end was kept back`);
      }
      t.equal((await agent.get(path.agentUrl)).status, 404, `${name}: no further try`);
      t.equal((await agent.get(path.agentUrl, { range: 'bytes=1000-' })).status, 404, name);
      t.equal((await agent.get(path.agentUrl, {}, 'HEAD')).status, 404, name);
      t.equal(upstream.requests.filter(({ url }) => url.includes('/nar/')).length, 1, name);
    }
  }
  await until(() => agent.arriving().length === 0);
  t.same(agent.kept(), []);
  t.equal(agent.logged('an upstream sent a NAR that is not what it promised').length, 8);
});

t.test('of a small NAR that is wrong not one byte is sent', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(60_000);
  upstream.fault = onNar({ flipAt: 30_000 });
  t.equal((await agent.get(path.agentUrl)).status, 404);
  t.same(agent.kept(), []);
});

t.test('another NAR than the one that was signed', async (t) => {
  const { cache, agent } = await startChain(t);
  const [path, other, bomb] = [cache.add(MB), cache.add(MB), cache.add(MB, { compression: 'zstd' })];
  writeFileSync(join(cache.dir, path.info.url), other.file);
  t.notOk((await download(agent, path)).whole);
  writeFileSync(join(cache.dir, bomb.info.url), zstdCompressSync(Buffer.alloc(200 * MB)));
  t.equal((await agent.get(bomb.agentUrl)).status, 404, 'a decompression bomb');
  writeFileSync(join(cache.dir, other.info.url), Buffer.alloc(5 * MB));
  t.equal((await agent.get(other.agentUrl)).status, 404, 'larger than it can be');
  await until(() => agent.arriving().length === 0);
  t.same(agent.kept(), []);
});

t.test('a path whose content address does not fit its content is not believed', async (t) => {
  const { cache, agent } = await startChain(t);
  const path = cache.add(MB);
  const address = { method: 'flat', algorithm: 'sha256', digest: Buffer.alloc(32, 7) } as const;
  const info = { ...path.info, signatures: [], ca: `fixed:sha256:${encodeBase32(address.digest)}` };
  const claimed = contentAddressedPath(address, info);
  const narInfo = renderNarInfo({ ...info, path: claimed });
  writeFileSync(join(cache.dir, `${hashPart(claimed)}.narinfo`), narInfo);
  t.equal((await agent.get(`${hashPart(claimed)}.narinfo`)).status, 200, 'the address fits the path');
  const url = path.agentUrl.replace(path.hash, hashPart(claimed));
  t.notOk((await download(agent, { ...path, agentUrl: url })).whole, 'but not the content');
  t.same(agent.kept(), []);

  const other = cache.add(100);
  writeFileSync(
    join(cache.dir, `${other.hash}.narinfo`),
    renderNarInfo({ ...other.info, signatures: [], ca: info.ca }),
  );
  t.equal((await agent.get(`${other.hash}.narinfo`)).status, 404, 'the address of another path');
});

t.test('a broken download goes on where it broke', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(3 * MB, { compression: 'zstd' });
  const cuts = [0, 100_000, MB, MB, 2 * MB];
  upstream.fault = ({ url }) => (url.includes('/nar/') ? { cutAt: cuts.shift() } : undefined) as Fault;
  const answer = await download(agent, path);
  t.ok(answer.whole);
  t.ok(answer.body.equals(path.file));
  const ranges = upstream.requests.filter(({ url }) => url.includes('/nar/')).map(({ range }) => range);
  t.equal(ranges.length, 6);
  t.ok(
    ranges.some((range) => Number(range?.slice(6, -1)) >= MB),
    'the rest only',
  );
  await until(() => agent.kept().length === 1);
});

t.test('a download that cannot go on cuts the readers and is 404 from then on', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const cut = cache.add(3 * MB);
  upstream.fault = onNar({ cutAt: MB });
  const first = await download(agent, cut);
  t.notOk(first.whole);
  t.ok(first.body.equals(cut.file.subarray(0, first.body.length)));
  t.equal((await agent.get(cut.agentUrl)).status, 404);

  const noRange = cache.add(3 * MB);
  let asked = 0;
  upstream.fault = ({ url }) =>
    url.includes('/nar/') ? (asked++ === 0 ? { cutAt: MB } : { ignoreRange: true }) : undefined;
  t.notOk((await download(agent, noRange)).whole, 'the whole again is not the rest');
  await until(() => agent.arriving().length === 0);
  t.same(agent.kept(), []);
});

t.test('a disk that fills up cuts the readers, says so, and keeps nothing', async (t) => {
  const stateDir = join(temporaryDirectory(t), 'small');
  mkdirSync(stateDir);
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'none', stateDir]);
  if (mounted.status !== 0) {
    t.pass('a small file system cannot be mounted here', { skip: 'it takes the right to mount' });
    return;
  }
  t.teardown(() => spawnSync('umount', ['-l', stateDir]));
  const { cache, upstream, agent } = await startChain(t, { stateDir });
  t.teardown(() => agent.stop());
  const path = cache.add(12 * MB);
  const answers = await Promise.all([1, 2].map(() => download(agent, path)));
  for (const answer of answers) t.notOk(answer.whole);
  t.equal((await agent.get(path.agentUrl)).status, 404);
  // The readers are cut first, then it is said.
  const said = () => agent.logged("the disk of the agent's state directory is full");
  await until(() => said().length > 0);
  t.equal(said().length, 1);
  t.equal((await agent.get(`${path.hash}.narinfo`)).status, 200, 'narinfos go on');
  const small = cache.add(MB);
  t.ok((await download(agent, small)).whole, 'what fits is served');
  await upstream.close();
});

t.test('the agent closes while a NAR arrives', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(20 * MB);
  upstream.fault = onNar({ slow: 50 });
  const { body } = await request(`${agent.url}/${path.agentUrl}`);
  body.on('error', () => {});
  body.resume();
  const before = performance.now();
  await agent.stop();
  t.ok(performance.now() - before < 2_000);
  t.same(agent.arriving(), []);
  t.same(agent.kept(), []);
});
