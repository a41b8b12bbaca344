import { spawnSync } from 'node:child_process';
import { chmodSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import t from 'tap';
import { ApiError } from '../../api/problem.ts';
import { type RunPushOptions, runPush } from '../../cli/run-push.ts';
import { FakeOrigin, fail } from '../support/fake-origin.ts';
import { closureExpr, createNixSandbox, type NixSandbox, NO_NIX, nixAvailable } from '../support/nix.ts';

class Pipe {
  text = '';
  write(text: string): void {
    this.text += text;
  }
}

class Terminal extends Pipe {
  readonly isTTY = true;
  readonly columns = 60;
}

function given(text: string): RunPushOptions['input'] {
  return Readable.from(text === '' ? [] : [Buffer.from(text)]);
}

const NOTHING_VALID = 'fffffffffffffffffffffffffffffff0-none';

t.test('bcache push', { skip: !nixAvailable() && NO_NIX }, async (t) => {
  const nix: NixSandbox = createNixSandbox(t);
  const [root] = (await nix.build(closureExpr(3))) as [string];
  const closure = (await nix.must('nix-store', ['-qR', root])).split('\n');
  const origin = await FakeOrigin.start();
  t.teardown(() => origin.close());

  async function run(options: Partial<RunPushOptions>) {
    const out = new Pipe();
    const err = options.err ?? new Pipe();
    const done = await runPush({
      cache: origin.cache,
      paths: [],
      jobs: undefined,
      level: undefined,
      client: { url: origin.url, token: undefined },
      env: nix.env,
      input: given(''),
      out,
      err,
      ...options,
    });
    return { done, out: out.text, err: (err as Pipe).text };
  }

  t.beforeEach(() => {
    origin.entries.clear();
    origin.requests.length = 0;
    origin.fault = () => false;
    origin.judge = () => undefined;
  });

  await t.test('tells of each path, and sums up', async (t) => {
    const { done, out, err } = await run({ paths: [root] });
    t.ok(done);
    t.equal(err, '');
    const lines = out.trimEnd().split('\n');
    t.same(
      lines
        .slice(0, 3)
        .map((line) => line.replace(/^pushed (\S+) {2}\(\d+ B → \d+ B\)$/, '$1'))
        .sort(),
      [...closure].sort(),
    );
    t.match(lines[3], /^3 paths pushed: [\d.]+ KiB NAR, \d+ B sent in \d\.\d s$/);
    t.equal(lines.length, 4);

    const again = await run({ paths: [root] });
    t.same(again, { done: true, out: "all 3 paths are in 'main' already\n", err: '' });

    origin.entries.delete(root.slice(nix.storeDir.length + 1).slice(0, 32));
    t.match((await run({ paths: [root] })).out, /\n1 path pushed, 2 were there already: /);
  });

  await t.test('takes links, paths below, and the same path twice', async (t) => {
    const link = join(nix.dir, 'result');
    symlinkSync(root, link);
    t.match((await run({ paths: [link, `${root}/bin/hello`, root] })).out, /3 paths pushed/);
  });

  await t.test('takes paths from standard input', async (t) => {
    const { out } = await run({ input: given(`  ${closure[0]}\n\n${closure[1]}\t${closure[0]}`) });
    t.match(out, /2 paths pushed/);
    t.match(await run({ input: given(' \n') }), { done: true, out: /^nothing to push/ });
    t.same(origin.requests.length, 2, 'nothing is asked for nothing');
    await t.rejects(run({ input: given('x'.repeat(5000)) }), { code: 'bad_input' });
    const terminal = Object.assign(given(''), { isTTY: true });
    await t.rejects(run({ input: terminal }), { code: 'no_paths', hint: /result/ });
  });

  await t.test('names every path that is wrong before it sends anything', async (t) => {
    const gone = `${nix.storeDir}/${NOTHING_VALID}`;
    await t.rejects(run({ paths: [root, gone] }), { code: 'invalid_path', message: new RegExp(gone) });
    const message = new RegExp(`^2 paths cannot be pushed: .*${nix.storeDir}/odd.*; .*/etc/hostname`);
    await t.rejects(run({ paths: [`${nix.storeDir}/odd`, root, '/etc/hostname'] }), { message });
    await t.rejects(run({ paths: [root], cache: 'Not A Cache' }), { code: 'bad_cache_name' });
    await t.rejects(run({ paths: [root], jobs: 0 }), { message: /--jobs .* 1 to 256/ });
    await t.rejects(run({ paths: [root], level: Number.NaN }), { message: /--level .* 1 to 19/ });
    t.same(origin.requests, []);
  });

  await t.test('a failed path is told with what to do, and the exit code says so', async (t) => {
    origin.judge = ({ path }) =>
      path === closure[1] ? { path, result: 'refused', code: 'odd', message: 'it is odd' } : undefined;
    const { done, out, err } = await run({ paths: [root] });
    t.notOk(done);
    t.match(out, /\n1 path pushed, 2 failed: /);
    const culprit = closure[1]?.slice(nix.storeDir.length + 1);
    t.equal(
      err,
      `failed ${closure[1]}: it is odd\nfailed ${closure[2]}: it needs ${culprit}, which could not be pushed\n`,
    );
  });

  await t.test('a corrupt path', async (t) => {
    const corrupt = createNixSandbox(t);
    const [path] = (await corrupt.build(closureExpr(1))) as [string];
    const file = join(path, 'bin/hello');
    chmodSync(file, 0o755);
    writeFileSync(file, 'something else');
    const { done, err } = await run({ paths: [path], env: corrupt.env });
    t.notOk(done);
    t.match(
      err,
      /^failed \S+: the contents of \S+ do not match .*`nix-store --verify --check-contents --repair`\.\n$/,
    );
  });

  await t.test('other contents in the cache are told', async (t) => {
    const keptNarHash = `sha256:${'0'.repeat(52)}`;
    origin.judge = ({ path }) => ({ path, result: 'present', keptNarHash });
    const { done, err } = await run({ paths: [closure[0] as string] });
    t.ok(done);
    t.match(err, `'main' keeps other contents of ${closure[0]} (NarHash ${keptNarHash})`);
  });

  await t.test('on a terminal there is one line, gone in the end', async (t) => {
    origin.fault = async ({ path }) => {
      if (path === 'commit') await new Promise((resolve) => setTimeout(resolve, 350));
      return false;
    };
    const err = new Terminal();
    const { out } = await run({ paths: [root], err });
    t.match(out, /^3 paths pushed: [^\n]*\n$/, 'no line for each path');
    t.match(err.text, /\r\x1b\[K0\/3 paths {2}[\d.]+ KiB of [\d.]+ KiB {2}[\d.]+ (Ki)?B\/s/);
    t.ok(err.text.endsWith('\r\x1b[K'));
    t.ok(err.text.split('\r\x1b[K').every((line) => line.length < 60 && !line.includes('\n')));
  });

  await t.test('the origin says no', async (t) => {
    origin.fault = (_, { request, response }) => {
      const error = new ApiError(401, 'bad_token', 'the token is not valid', { hint: 'log in again' });
      request.resume().on('end', () => fail(response, error));
      return true;
    };
    await t.rejects(run({ paths: [root] }), { code: 'bad_token', hint: 'log in again' });
  });

  await t.test('an origin that is not there', async (t) => {
    const err = new Pipe();
    const client = { url: 'http://127.0.0.1:9', token: undefined };
    await t.rejects(run({ paths: [root], client, err }), { code: 'unreachable' });
    t.match(err.text, /^cannot reach the origin at .*; trying again in 0\.\d s\n/);
  });

  await t.test('paths are held while they are pushed', async (t) => {
    const held = createNixSandbox(t);
    await held.startDaemon();
    const [path] = (await held.build(closureExpr(2))) as [string];
    let left = '';
    origin.fault = ({ path: call }) => {
      if (call === 'commit') {
        const { stdout } = spawnSync('nix-store', ['--gc'], { env: held.env, encoding: 'utf8' });
        left = stdout;
      }
      return false;
    };
    const daemon = { ...held.env, NIX_REMOTE: 'daemon' };
    t.match(await run({ paths: [path], env: daemon }), { done: true, err: '' });
    t.notMatch(left, path, 'not collected');
    t.same(held.storeNames().length, 2);
    await held.must('nix-store', ['--gc']);
    t.same(held.storeNames(), [], 'let go afterwards');
  });

  await t.test('without temp roots there is a warning', async (t) => {
    const bare = createNixSandbox(t);
    const [path] = (await bare.build(closureExpr(1))) as [string];
    // Neither a daemon nor a program that could be one.
    const env = { ...bare.env, PATH: join(bare.dir, 'none') };
    rmSync(bare.socketPath, { force: true });
    const { done, err } = await run({ paths: [path], env });
    t.ok(done);
    t.match(err, /^bcache: warning: nothing can be protected from garbage collection: [^\n]*\n$/);
  });
});
