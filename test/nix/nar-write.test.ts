import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { type WriteNarOptions, writeNar } from '../../nix/nar/write.ts';
import {
  directory,
  encodeNar,
  file,
  parseTree,
  symlink,
  type Tree,
  trees,
  writeTree,
} from '../support/nar-tree.ts';

function write(root: string, options?: WriteNarOptions): Buffer {
  return Buffer.concat([...writeNar(root, options)]);
}

/** A path for `tree`, with it. */
function place(t: Test, tree: Tree): string {
  const path = join(t.testdir(), 'root');
  writeTree(Buffer.from(path), tree);
  return path;
}

t.test('any tree becomes its NAR, in blocks of any size', async (t) => {
  const base = t.testdir();
  let count = 0;
  fc.assert(
    fc.property(trees(), fc.integer({ min: 1, max: 700 }), (tree, blockSize) => {
      const path = join(base, `${count++}`);
      writeTree(Buffer.from(path), tree);
      const blocks = [...writeNar(path, { blockSize })];
      const nar = Buffer.concat(blocks);
      t.ok(nar.equals(encodeNar(tree)));
      t.same(encodeNar(parseTree(blocks)), nar);
      const last = blocks.pop();
      t.ok(blocks.every((block) => block.length === blockSize));
      t.ok(last && last.length > 0 && last.length <= blockSize);
    }),
    { numRuns: 60 },
  );
});

t.test('large files go through many blocks', async (t) => {
  const contents = Buffer.alloc(5 << 20, 'some bytes, ');
  const tree = directory({ large: file(contents), small: file('x') });
  const path = place(t, tree);
  const blocks = [...writeNar(path)];
  t.same(
    blocks.slice(0, -1).map(({ length }) => length),
    [2 << 20, 2 << 20],
  );
  t.ok(Buffer.concat(blocks).equals(encodeNar(tree)));
});

t.test('the memory is what the caller gives', async (t) => {
  const path = place(t, file(Buffer.alloc(1000, 'x')));
  const given: Buffer[] = [];
  const allocate = () => {
    const buffer = Buffer.alloc(640);
    given.push(buffer);
    return buffer;
  };
  const blocks = [...writeNar(path, { blockSize: 512, allocate })];
  t.same(
    blocks.map(({ length }) => length),
    [512, 512, 88],
  );
  t.ok(blocks.every((block, i) => block.buffer === given[i]?.buffer));
  t.throws(() => write(path, { blockSize: 512, allocate: () => Buffer.alloc(511) }), /512/);
});

t.test('a NAR that ends with a block has no empty one behind it', async (t) => {
  const path = place(t, file('abc'));
  t.same(
    [...writeNar(path, { blockSize: 60 })].map(({ length }) => length),
    [60, 60],
  );
});

t.test('deep directories', async (t) => {
  let tree = file('deep');
  for (let i = 0; i < 200; i++) tree = directory({ d: tree });
  t.ok(write(place(t, tree)).equals(encodeNar(tree)));
});

t.test('executable is what its owner may execute', async (t) => {
  for (const [mode, executable] of [
    [0o744, true],
    [0o555, true],
    [0o655, false],
    [0o444, false],
  ] as const) {
    const path = place(t, file('x'));
    chmodSync(path, mode);
    t.ok(write(path).equals(encodeNar(file('x', executable))), mode.toString(8));
  }
});

t.test('a symlink at the root is not followed', async (t) => {
  t.ok(write(place(t, symlink('/etc'))).equals(encodeNar(symlink('/etc'))));
});

t.test('what has no place in a NAR is refused', async (t) => {
  const path = place(t, directory({ a: file('') }));
  const server = createServer();
  t.teardown(() => server.close());
  await new Promise<void>((resolve) => server.listen(join(path, 'socket'), resolve));
  const refused = { name: 'StoreError', code: 'nar_unsupported_file', message: /socket' is no file/ };
  t.throws(() => write(path), refused);
  t.throws(() => write('/dev/null'), { code: 'nar_unsupported_file' });
});

t.test('what cannot be read is an error with the reason', async (t) => {
  const refused = {
    name: 'StoreError',
    code: 'nar_unreadable',
    message: /ENOENT/,
    cause: { code: 'ENOENT' },
  };
  t.throws(() => write(join(t.testdir(), 'missing')), refused);
});

t.test('a file that changes its size while it is read', async (t) => {
  for (const [name, change] of [
    ['shrinks', (path: string) => truncateSync(path, 600)],
    ['is emptied', (path: string) => truncateSync(path, 0)],
    ['grows', (path: string) => appendFileSync(path, 'x')],
  ] as const) {
    const path = place(t, file(Buffer.alloc(1000, 'x')));
    const blocks = writeNar(path, { blockSize: 512 });
    t.notOk(blocks.next().done);
    change(path);
    const error = { name: 'StoreError', code: 'nar_file_changed', message: /changed its size/ };
    t.throws(() => [...blocks], error, name);
  }
});

t.test('no file stays open', { skip: existsSync('/proc/self/fd') ? false : 'needs /proc' }, async (t) => {
  const path = place(t, directory({ a: file(Buffer.alloc(1000, 'x')), b: file('y') }));
  const open = () => readdirSync('/proc/self/fd').length;
  const before = open();
  for (const _ of writeNar(path, { blockSize: 512 })) break;
  write(path);
  t.equal(open(), before);
});

t.test("macOS's suffixes for names that differ in case only", async (t) => {
  const path = join(t.testdir(), 'root');
  mkdirSync(path);
  writeFileSync(join(path, 'readme~nix~case~hack~1'), 'small');
  writeFileSync(join(path, 'README'), 'large');
  writeFileSync(join(path, 'readme.txt'), '');
  const tree = directory({ README: file('large'), readme: file('small'), 'readme.txt': file('') });
  t.ok(write(path, { caseHack: true }).equals(encodeNar(tree)));
  t.match(write(path, { caseHack: false }).toString('latin1'), /readme~nix~case~hack~1/);
  writeFileSync(join(path, 'readme~nix~case~hack~2'), '');
  t.throws(() => write(path, { caseHack: true }), { name: 'StoreError', code: 'nar_case_collision' });
});
