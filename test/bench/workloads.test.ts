import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { closureOf, openPrivateNix, type PrivateNix, run } from '../../bench/support/nix.ts';
import { orderPackages, parseDepends } from '../../bench/workloads/apt.ts';
import { packageClosure } from '../../bench/workloads/debian.ts';
import { Noise } from '../../bench/workloads/noise.ts';
import { largeNar, tinyPaths } from '../../bench/workloads/synthetic.ts';

const has = (program: string) => spawnSync(program, ['--version']).error === undefined;
const withoutNix = has('nix-store') ? false : 'Nix is not installed';

/** A private Nix in its own folder: store paths are write-protected, so the test's fixture could not be removed. */
const openNix = async (t: Test) => {
  const root = mkdtempSync(join(tmpdir(), 'bcache-test-'));
  t.teardown(() => {
    execFileSync('chmod', ['-R', 'u+w', root]);
    rmSync(root, { recursive: true });
  });
  return openPrivateNix(root);
};

const references = async (nix: PrivateNix, path: string) =>
  (await run('nix-store', ['-q', '--references', path], nix.env)).split('\n').filter((line) => line !== '');

t.test('apt-cache depends is read with alternatives and providers', async (t) => {
  const text = `tool
 |Depends: <first-choice>
  Depends: <virtual>
    provider-a
    provider-b
  PreDepends: base
base
  Depends: tool
<virtual>
provider-a
other
`;
  t.strictSame(
    parseDepends(text),
    new Map([
      ['tool', [['provider-a', 'provider-b'], ['base']]],
      ['base', [['tool']]],
      ['provider-a', []],
      ['other', []],
    ]),
  );
});

t.test('packages come after their dependencies, whatever circles there are', async (t) => {
  const names = fc.nat({ max: 12 }).map((n) => `p${n}`);
  const graph = fc.dictionary(names, fc.array(fc.array(names, { maxLength: 3 }), { maxLength: 4 }));
  fc.assert(
    fc.property(graph, (packages) => {
      const alternatives = new Map(Object.entries(packages));
      const roots = [...alternatives.keys()].slice(0, 2);
      const order = orderPackages(roots, alternatives);
      const seen = new Set<string>();
      for (const [name, dependencies] of order) {
        if (!dependencies.every((dependency) => seen.has(dependency))) return false;
        seen.add(name);
      }
      return roots.every((root) => seen.has(root));
    }),
    { numRuns: 200 },
  );
  t.strictSame(
    orderPackages(
      ['a'],
      new Map([
        ['a', [['gone', 'b']]],
        ['b', [['a'], ['c']]],
        ['c', []],
      ]),
    ),
    new Map([
      ['c', []],
      ['b', ['c']],
      ['a', ['b']],
    ]),
    'the first alternative that exists, without the way back',
  );
});

t.test('noise is the same for the same seed', async (t) => {
  const bytes = (seed: string) => Buffer.concat([...new Noise(seed).mixed(200_000)]);
  t.equal(bytes('a').length, 200_000);
  t.ok(bytes('a').equals(bytes('a')));
  t.notOk(bytes('a').equals(bytes('b')));
});

t.test('tiny paths', { skip: withoutNix }, async (t) => {
  const nix = await openNix(t);
  const { roots, paths, narBytes } = await tinyPaths(nix, 120);
  t.equal(roots.length, 1);
  t.equal(paths.length, 120);
  t.ok(paths.every((path) => statSync(path).size < 10_000));
  t.ok(narBytes > 120 * 100 && narBytes < 120 * 10_000, String(narBytes));
  t.strictSame((await tinyPaths(nix, 120)).paths, paths, 'the same again');
  await t.rejects(tinyPaths(nix, 3), { code: 'bad_option' });
});

t.test('one large NAR', { skip: withoutNix }, async (t) => {
  const nix = await openNix(t);
  const { roots, paths, narBytes } = await largeNar(nix, 4 << 20);
  t.strictSame(paths, roots);
  t.equal(narBytes, 4 << 20);
  const dumped = execFileSync('nix-store', ['--dump', roots[0]!], { env: nix.env, maxBuffer: 8 << 20 });
  t.equal(dumped.length, narBytes);
  const expected = Buffer.concat([...new Noise('large').mixed(narBytes - 112)]);
  t.ok(readFileSync(roots[0]!).equals(expected));
  await t.rejects(largeNar(nix, 2 ** 20 + 1), { code: 'bad_option' });
});

const withoutDpkg = withoutNix || (has('dpkg-deb') ? false : 'dpkg-deb is not installed');

t.test('Debian packages become store paths that refer to each other', { skip: withoutDpkg }, async (t) => {
  const nix = await openNix(t);
  const folder = t.testdir();
  const packages = [
    { name: 'base', version: '1:2.0~rc1', file: makeDeb(folder, 'base'), dependencies: [] },
    { name: 'tool', version: '1.0', file: makeDeb(folder, 'tool'), dependencies: ['base'] },
    { name: 'other', version: '1.0', file: makeDeb(folder, 'other'), dependencies: [] },
  ];
  const { roots, paths, narBytes } = await packageClosure(nix, packages, ['tool']);
  const [tool, base] = [roots[0]!, paths.find((path) => path !== roots[0])!];
  t.equal(roots.length, 1);
  t.equal(paths.length, 2, 'only what the root needs');
  t.match(tool, /-tool-1\.0$/);
  t.match(base, /-base-1-2\.0-rc1$/);
  t.strictSame(await references(nix, tool), [base]);
  t.strictSame(await references(nix, base), []);
  t.ok(narBytes > 2000);
  t.equal(readFileSync(join(tool, 'usr/bin/tool'), 'utf8'), 'tool'.repeat(300));
  t.equal(statSync(join(tool, 'usr/bin/tool')).mode & 0o7777, 0o555, 'a setuid bit is gone');
  t.notOk(statSync(join(tool, 'usr/queue'), { throwIfNoEntry: false }), 'what a NAR cannot hold is left out');
  t.strictSame((await closureOf(nix, [base])).paths, [base]);
});

/** A package with a setuid program, a symbolic link that leads nowhere, a closed folder and a named pipe. */
function makeDeb(folder: string, name: string): string {
  const tree = join(folder, `${name}.tree`);
  mkdirSync(join(tree, 'DEBIAN'), { recursive: true });
  mkdirSync(join(tree, 'usr/bin'), { recursive: true });
  mkdirSync(join(tree, 'usr/closed'));
  writeFileSync(join(tree, 'usr/closed/file'), '');
  writeFileSync(
    join(tree, 'DEBIAN/control'),
    `Package: ${name}\nVersion: 1\nArchitecture: all\nMaintainer: none <none@example.org>\nDescription: none\n`,
  );
  writeFileSync(join(tree, 'usr/bin', name), name.repeat(300));
  chmodSync(join(tree, 'usr/bin', name), 0o4755);
  symlinkSync('/nowhere', join(tree, 'usr/bin/link'));
  execFileSync('mkfifo', [join(tree, 'usr/queue')]);
  chmodSync(join(tree, 'usr/closed'), 0o500);
  const file = join(folder, `${name}_1%3a2_all.deb`);
  execFileSync('dpkg-deb', ['--root-owner-group', '--build', tree, file], { stdio: 'ignore' });
  chmodSync(join(tree, 'usr/closed'), 0o700);
  return file;
}
