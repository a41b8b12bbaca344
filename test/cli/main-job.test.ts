// The main job as a user does it: start, build, push, fetch in another store through the agent.
import t from 'tap';
import { closureExpr, createNixSandbox, NO_NIX, nixAvailable } from '../support/nix.ts';
import { BCACHE, countingProxy, startService } from '../support/service.ts';

t.test('push from one Nix, substitute into another', { skip: nixAvailable() ? false : NO_NIX }, async (t) => {
  const service = await startService(t);
  const nix = createNixSandbox(t);
  const [root] = (await nix.build(closureExpr(4))) as [string];
  const push = (env: NodeJS.ProcessEnv = {}) =>
    nix.run(process.execPath, [BCACHE, 'push', 'main', root], { env: { ...service.env, ...env } });

  const first = await push();
  t.equal(first.code, 0, first.stderr);
  t.match(first.stdout, /4 paths pushed: /);

  const proxy = await countingProxy(t, service.originUrl);
  const again = await push({ BCACHE_ORIGIN_URL: proxy.url, BCACHE_AUTH_TOKEN: service.token });
  t.equal(again.code, 0, again.stderr);
  t.match(again.stdout, "all 4 paths are in 'main' already");
  t.same(proxy.requests, ['POST /api/v1/caches/main/missing'], 'one request asks for all');

  const added = await nix.must('nix-store', ['--add', BCACHE]);
  const content = await nix.run(process.execPath, [BCACHE, 'push', 'main', added], { env: service.env });
  t.equal(content.code, 0, `a content-addressed path: ${content.stderr}`);

  const second = nix.secondStore({
    settings: [
      `substituters = ${service.agentUrl}`,
      `trusted-public-keys = ${service.publicKey}`,
      'require-sigs = true',
    ],
  });
  const realise = async () => {
    const result = await second.run('nix-store', ['-r', root]);
    t.equal(result.code, 0, result.stderr);
    t.equal(second.storeNames().length, 4);
    const verified = await second.run('nix-store', ['--verify', '--check-contents']);
    t.equal(verified.code, 0, verified.stderr);
    t.notMatch(verified.stderr, /modified|missing|error/);
  };
  await realise();
  const hashes = (sandbox: typeof nix) => sandbox.must('nix-store', ['-q', '--hash', root]);
  t.equal(await hashes(second), await hashes(nix));

  await t.test('nix copy --from', async (t) => {
    const third = nix.secondStore({
      settings: [`trusted-public-keys = ${service.publicKey}`, 'require-sigs = true'],
    });
    const copied = await third.run('nix', ['copy', '--from', service.agentUrl, root]);
    t.equal(copied.code, 0, copied.stderr);
    t.equal(third.storeNames().length, 4);
  });

  // The agent alone serves it when the origin answers no more.
  const origin = Number(
    await nix.must('pgrep', ['-o', '-f', `bcache.ts serve --state ${service.state}/origin`]),
  );
  process.kill(origin, 'SIGSTOP');
  try {
    second.clearStore();
    second.clearCacheCache();
    await realise();
  } finally {
    process.kill(origin, 'SIGCONT');
  }

  t.equal(await service.start.stop(), 0, 'Ctrl-C ends it cleanly');
  await t.rejects(fetch(service.originUrl), 'the origin is down');
  await t.rejects(fetch(service.agentUrl), 'the agent is down');
});
