import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { generateSecretKey } from '../../nix/keys.ts';
import { parseNarInfo } from '../../nix/narinfo.ts';
import { namePart } from '../../nix/store-path.ts';
import { AgentUnderTest, temporaryDirectory, until } from '../support/agent.ts';
import { createNixSandbox, type NixSandbox, NO_NIX, nixAvailable } from '../support/nix.ts';
import { type Fault, startUpstream } from '../support/upstream.ts';

const REAL = { skip: nixAvailable() ? false : NO_NIX };

/** Three paths, each referring to the one before; the last holds several megabytes. */
const CLOSURE = `let
  make = name: script: derivation {
    inherit name; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" script ];
  };
  lib = make "lib" "echo lib > $out";
  tool = make "tool" "echo \${lib} > $out";
in make "app" "echo \${tool} > $out; /usr/bin/seq 1 400000 >> $out"`;

/** A closure in an upstream cache, made by the real Nix, whose store is empty again; and an agent before it. */
async function startNixChain(t: Test, compression = 'zstd') {
  const dir = temporaryDirectory(t);
  const nix = createNixSandbox(t);
  const key = generateSecretKey('real-1');
  writeFileSync(join(dir, 'secret'), key.exportText());
  const expression = join(dir, 'closure.nix');
  writeFileSync(expression, CLOSURE);
  const app = await nix.must('nix-build', ['--no-out-link', expression]);
  const contents = readFileSync(app);
  const cacheDir = join(dir, 'cache');
  const store = `file://${cacheDir}?compression=${compression}&secret-key=${join(dir, 'secret')}`;
  await nix.must('nix', ['copy', '--to', store, app]);
  clear(nix);
  const upstream = await startUpstream(cacheDir);
  t.teardown(() => upstream.close());
  const upstreams = [{ url: upstream.url, publicKeys: [key.publicKey.text] }];
  const agent = await new AgentUnderTest(t, { upstreams }).start();
  nix.configure(`substituters = ${agent.url}`, `trusted-public-keys = ${key.publicKey.text}`);
  return { nix, upstream, agent, app, contents, expression, cacheDir, key };
}

for (const compression of ['zstd', 'xz', 'none', 'br', 'bzip2']) {
  t.test(`nix-store -r through the agent, ${compression}; then with no upstream at all`, REAL, async (t) => {
    const { nix, upstream, agent, app, contents } = await startNixChain(t, compression);
    const first = await nix.run('nix-store', ['-r', app]);
    t.equal(first.code, 0, first.stderr);
    t.ok(readFileSync(app).equals(contents));
    await nix.must('nix-store', ['--verify', '--check-contents']);
    await until(() => agent.kept().length === 3);

    await upstream.close();
    await agent.restart({ port: Number(new URL(agent.url).port) });
    clear(nix);
    const second = await nix.run('nix-store', ['-r', app]);
    t.equal(second.code, 0, second.stderr);
    t.ok(readFileSync(app).equals(contents));
  });
}

t.test('nix copy --from the agent', REAL, async (t) => {
  const { nix, agent, app, contents } = await startNixChain(t);
  await nix.must('nix', ['copy', '--from', agent.url, app]);
  t.ok(readFileSync(app).equals(contents));
  t.equal(nix.storeNames().length, 3);
});

t.test('a path that proves itself by its content needs no signature', REAL, async (t) => {
  const { nix, agent, cacheDir } = await startNixChain(t);
  const source = join(temporaryDirectory(t), 'source');
  writeFileSync(source, 'x'.repeat(10_000));
  const paths = [
    await nix.must('nix-store', ['--add', source]),
    await nix.must('nix-store', ['--add-fixed', 'sha1', source]),
  ];
  await nix.must('nix', ['copy', '--to', `file://${cacheDir}`, ...paths]);
  clear(nix);
  const { code, stderr } = await nix.run('nix-store', ['-r', ...paths]);
  t.equal(code, 0, stderr);
  t.equal(nix.storeNames().length, 2);
  await until(() => agent.kept().length > 0);
});

const FAULTS: { name: string; compression: string; path: string; fault: Fault }[] = [
  { name: 'a wrong byte in a large NAR', compression: 'none', path: 'app', fault: { flipAt: 2_000_000 } },
  { name: 'a wrong byte in a small NAR', compression: 'xz', path: 'lib', fault: { flipAt: 70 } },
  { name: 'a NAR that is cut short', compression: 'none', path: 'app', fault: { cutAt: 1_000_000 } },
  { name: 'a NAR that is gone', compression: 'zstd', path: 'tool', fault: { status: 404 } },
  { name: 'a NAR that fails', compression: 'zstd', path: 'tool', fault: { status: 503 } },
];

for (const { name, compression, path, fault } of FAULTS) {
  t.test(`${name} is built here instead, and not kept`, REAL, async (t) => {
    const { nix, upstream, agent, app, contents, expression, cacheDir } = await startNixChain(t, compression);
    const broken = narUrl(cacheDir, path);
    upstream.fault = ({ url }) => (url === `/${broken}` ? fault : undefined);
    const { code, stderr } = await nix.run('nix-build', ['--no-out-link', expression]);
    t.equal(code, 0, stderr);
    t.match(stderr, new RegExp(`building '.*-${path}.drv'`));
    t.ok(readFileSync(app).equals(contents));
    await until(() => agent.arriving().length === 0);
    t.equal(agent.kept().length, 2, 'the other two are');
  });
}

t.test('an upstream that fails altogether fails no build', REAL, async (t) => {
  const { nix, upstream, app, contents, expression } = await startNixChain(t);
  for (const status of [401, 403, 429, 500, 503]) {
    upstream.fault = () => ({ status });
    const { code, stderr } = await nix.run('nix-build', ['--no-out-link', expression]);
    t.equal(code, 0, stderr);
    t.ok(readFileSync(app).equals(contents));
    clear(nix);
  }
  await upstream.close();
  const { code, stderr } = await nix.run('nix-build', ['--no-out-link', expression]);
  t.equal(code, 0, stderr);
});

/** Empties the store, and what its Nix remembers of caches. */
function clear(nix: NixSandbox): void {
  nix.clearStore();
  nix.clearCacheCache();
}

/** Where a file cache has the NAR of the path called `name`. */
function narUrl(cacheDir: string, name: string): string {
  for (const file of readdirSync(cacheDir).filter((file) => file.endsWith('.narinfo'))) {
    const info = parseNarInfo(readFileSync(join(cacheDir, file), 'utf8'));
    if (namePart(info.path) === name) return info.url;
  }
  throw new Error(`the cache has no path called ${name}`);
}
