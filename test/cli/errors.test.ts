// Whatever is wrong, one clear line says what, the next what to do, and the exit code is not 0.
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { closureExpr, createNixSandbox, NO_NIX, nixAvailable } from '../support/nix.ts';
import { BCACHE, startService } from '../support/service.ts';

t.test('push with bad input', { skip: nixAvailable() ? false : NO_NIX }, async (t) => {
  const service = await startService(t);
  const nix = createNixSandbox(t);
  const [root] = (await nix.build(closureExpr(2))) as [string];
  const push = async (args: readonly string[], env: NodeJS.ProcessEnv = {}) => {
    const all = { ...service.env, ...env };
    const result = await nix.run(process.execPath, [BCACHE, 'push', ...args], { env: all });
    t.notMatch(result.stderr, /\n\s+at /, 'no stack trace');
    return result;
  };

  const cases: readonly [string, readonly string[], NodeJS.ProcessEnv, RegExp][] = [
    ['not valid', ['main', `${nix.storeDir}/${'0'.repeat(32)}-absent`], {}, /^bcache: .*0-absent.*\n {2}\S/],
    ['malformed', ['main', `${nix.storeDir}/nonsense`], {}, /^bcache: .*nonsense.*\n {2}\S/],
    ['outside the store', ['main', tmpdir()], {}, /^bcache: .*store.*\n {2}\S/],
    ['unknown cache', ['mian', root], {}, /^bcache: there is no cache 'mian'.*\n {2}\S/],
    ['malformed cache name', ['No/Name', root], {}, /^bcache: 'No\/Name' is not a cache name\n {2}\S/],
    [
      'wrong token',
      ['main', root],
      { BCACHE_AUTH_TOKEN: 'wrong' },
      /^bcache: the token is not valid.*\n {2}\S/,
    ],
    [
      'no origin',
      ['main', root],
      { BCACHE_ORIGIN_URL: 'http://127.0.0.1:9' },
      /bcache: cannot reach the origin at http:\/\/127\.0\.0\.1:9.*\n {2}\S/,
    ],
  ];
  for (const [what, args, env, expected] of cases) {
    const { code, stderr } = await push(args, env);
    t.equal(code, 1, what);
    t.match(stderr, expected, what);
  }

  const changed = (await nix.build(closureExpr(3, 'changed'))) as [string];
  chmodSync(changed[0], 0o755);
  const file = await nix.must('find', [changed[0], '-type', 'f']);
  const damaged = file.split('\n')[0] as string;
  chmodSync(damaged, 0o644);
  writeFileSync(damaged, 'other bytes');
  const { code, stderr, stdout } = await push(['main', changed[0]]);
  t.equal(code, 1);
  t.match(stderr, /^failed .*do not match.*nix-store --verify/m, 'bytes that do not match');
  t.match(stdout, /2 paths pushed, 1 failed/, 'what is sound is pushed');

  const empty = mkdtempSync(join(tmpdir(), 'bcache-no-nix-'));
  t.teardown(() => nix.run('rm', ['-r', empty]));
  const none = await push(['main', root], { NIX_STATE_DIR: join(empty, 'var') });
  t.equal(none.code, 1);
  t.match(none.stderr, /^bcache: .*\n {2}\S/, 'no Nix store');
});

t.test('calls that are wrong', async (t) => {
  const nix = createNixSandbox(t);
  for (const args of [[], ['psuh'], ['push'], ['push', 'main', '--what']]) {
    const { code, stderr } = await nix.run(process.execPath, [BCACHE, ...args]);
    t.equal(code, 2, args.join(' '));
    t.match(stderr, /^bcache: /);
  }
});
