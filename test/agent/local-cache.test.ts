import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { request } from 'undici';
import { AgentUnderTest, startChain, until } from '../support/agent.ts';
import type { SyntheticPath } from '../support/synthetic-cache.ts';

const MB = 1 << 20;

function keptPath(agent: AgentUnderTest, { info }: SyntheticPath): string {
  return join(agent.stateDir, 'cache', 'nar', info.narHash.slice(0, 2), `${info.narHash}.nar`);
}

t.test('a restart keeps narinfos and NARs, and needs no upstream for them', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(MB);
  const narInfo = (await agent.get(`${path.hash}.narinfo`)).body;
  await agent.get(path.agentUrl);
  await until(() => agent.kept().length === 1);
  await upstream.close();
  await agent.restart();
  t.same((await agent.get(`${path.hash}.narinfo`)).body, narInfo);
  t.ok((await agent.get(path.agentUrl)).body.equals(path.file));
});

t.test('a kept file that is gone or damaged is fetched again', async (t) => {
  const { cache, agent } = await startChain(t);
  const path = cache.add(MB);
  await agent.get(path.agentUrl);
  await until(() => agent.kept().length === 1);
  rmSync(keptPath(agent, path));
  t.ok((await agent.get(path.agentUrl)).body.equals(path.file));
  await until(() => agent.kept().length === 1);
  truncateSync(keptPath(agent, path), 1_000);
  t.ok((await agent.get(path.agentUrl)).body.equals(path.file));
  t.equal(agent.logged('a kept NAR file is missing or damaged: it will be fetched again').length, 2);
});

t.test('what an earlier run left behind is removed at the start', async (t) => {
  const { cache, agent } = await startChain(t);
  const [path, gone] = [cache.add(MB), cache.add(1_000)];
  await agent.get(path.agentUrl);
  await agent.get(gone.agentUrl);
  await until(() => agent.kept().length === 2);
  await agent.stop();
  const cacheDir = join(agent.stateDir, 'cache');
  writeFileSync(join(cacheDir, 'tmp', '1-2-3'), 'half a NAR');
  mkdirSync(join(cacheDir, 'nar', 'zz'), { recursive: true });
  writeFileSync(join(cacheDir, 'nar', 'zz', `${'z'.repeat(52)}.nar`), 'nobody knows it');
  rmSync(keptPath(agent, gone));
  await agent.start();
  const message = 'the local cache was cleaned of what an earlier run left behind';
  await until(() => agent.logged(message).length === 1);
  t.match(agent.logged(message)[0], { removed: 2, forgotten: 1 });
  t.same(agent.arriving(), []);
  t.same(agent.kept(), [`${path.info.narHash}.nar`]);
  t.ok((await agent.get(path.agentUrl)).body.equals(path.file));
});

t.test('a process that is killed while a NAR arrives leaves nothing of it', async (t) => {
  const { cache, upstream, agent } = await startChain(t);
  const path = cache.add(20 * MB);
  await agent.stop();
  upstream.fault = ({ url }) => (url.includes('/nar/') ? { slow: 20 } : undefined);
  const options = {
    stateDir: agent.stateDir,
    host: '127.0.0.1',
    port: 0,
    upstreams: [{ url: upstream.url, publicKeys: [cache.publicKey] }],
  };
  const script = join(import.meta.dirname, '../support/agent-process.ts');
  const child = spawn(process.execPath, [...process.execArgv, script, JSON.stringify(options)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = await once(child.stdout, 'data');
  const { body } = await request(`${String(line).trim()}/${path.agentUrl}`);
  body.on('error', () => {});
  await once(body, 'data');
  child.kill('SIGKILL');
  await once(child, 'exit');
  t.equal(agent.arriving().length, 1, 'it was arriving');

  upstream.fault = () => undefined;
  await agent.start();
  await until(() => agent.arriving().length === 0);
  t.same(agent.kept(), []);
  t.ok((await agent.get(path.agentUrl)).body.equals(path.file));
});

t.test('an index that is not a database is set aside', async (t) => {
  const { cache, agent } = await startChain(t);
  const path = cache.add(1_000);
  await agent.get(path.agentUrl);
  await agent.stop();
  const cacheDir = join(agent.stateDir, 'cache');
  writeFileSync(join(cacheDir, 'index.sqlite'), 'x'.repeat(10_000));
  await agent.start();
  t.equal(agent.logged('the index of the local cache cannot be read: beginning a new one').length, 1);
  t.equal(readdirSync(cacheDir).filter((name) => name.startsWith('index.sqlite.damaged-')).length, 1);
  t.ok((await agent.get(path.agentUrl)).body.equals(path.file));
  await until(() => agent.kept().length === 1);
});

t.test('with a bound, the least recently used NARs go first', async (t) => {
  const { cache, upstream, agent } = await startChain(t, { cacheBytes: 3.5 * MB });
  const paths = [cache.add(MB), cache.add(MB), cache.add(MB)] as const;
  for (const path of paths) {
    await agent.get(path.agentUrl);
    await until(() => agent.arriving().length === 0 && existsSync(keptPath(agent, path)));
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await agent.get(paths[0].agentUrl);
  const fourth = cache.add(MB);
  await agent.get(fourth.agentUrl);
  await until(() => !existsSync(keptPath(agent, paths[1])));
  t.ok(existsSync(keptPath(agent, paths[0])), 'used a moment ago');
  t.ok(existsSync(keptPath(agent, paths[2])));
  t.ok(existsSync(keptPath(agent, fourth)));

  const large = cache.add(5 * MB);
  upstream.requests.length = 0;
  t.ok((await agent.get(large.agentUrl)).body.equals(large.file), 'larger than the bound: served, not kept');
  await until(() => agent.arriving().length === 0);
  t.equal(agent.kept().length, 3);
});

t.test('one state directory serves one agent', async (t) => {
  const { agent } = await startChain(t);
  const second = new AgentUnderTest(t, { stateDir: agent.stateDir });
  await t.rejects(second.start(), { code: 'state_in_use', hint: /state directory/ });
  await agent.stop();
  await second.start();
  t.equal((await second.get('nix-cache-info')).status, 200);
});

t.test('a state directory that cannot be made is said so', async (t) => {
  const agent = new AgentUnderTest(t, {});
  await t.rejects(agent.start({ stateDir: '/dev/null/x' }), { code: 'state_unusable' });
});
