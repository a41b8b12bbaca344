import fc from 'fast-check';
import t from 'tap';
import { FormatError } from '../../nix/errors.ts';
import { NarParser } from '../../nix/nar/parse.ts';
import {
  cut,
  directory,
  encodeEntry,
  encodeNar,
  encodeNode,
  file,
  join,
  parseTree,
  str,
  symlink,
  type Tree,
  trees,
} from '../support/nar-tree.ts';

/** The code of the error that parsing ends with. */
function verdict(chunks: Iterable<Buffer>): string {
  const parser = new NarParser();
  try {
    for (const chunk of chunks) parser.write(chunk);
    parser.end();
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    return error.code;
  }
  return 'accepted';
}

function nested(depth: number): Tree {
  let tree = file('deep');
  for (let i = 0; i < depth; i++) tree = directory({ d: tree });
  return tree;
}

function root(...entries: Buffer[]): Buffer {
  return join('nix-archive-1', '(', 'type', 'directory', ...entries, ')');
}

function regular(...parts: (string | Buffer)[]): Buffer {
  return join('nix-archive-1', '(', 'type', 'regular', ...parts, ')');
}

function link(target: string): Buffer {
  return join('nix-archive-1', '(', 'type', 'symlink', 'target', target, ')');
}

/** `bytes` with the last zero before `end` made something else. */
function soiled(bytes: Buffer, end: number): Buffer {
  const copy = Buffer.from(bytes);
  if (copy[end - 1] !== 0) throw new Error('there is no zero');
  copy[end - 1] = 1;
  return copy;
}

const EMPTY = encodeNode(file(''));
const HELLO = encodeNar(file('hello'));
const HUGE = Buffer.alloc(8, 0xff);

t.test('good NARs', async (t) => {
  const good: Record<string, Buffer> = {
    'empty file': encodeNar(file('')),
    executable: encodeNar(file('#!', true)),
    'empty directory': encodeNar(directory()),
    'name of 255 bytes': root(encodeEntry('n'.repeat(255), EMPTY)),
    'name that is not UTF-8': root(encodeEntry('\xff\xfe', EMPTY)),
    'names that begin with dots': root(encodeEntry('...', EMPTY), encodeEntry('.a', EMPTY)),
    'names in the order of bytes': root(
      encodeEntry('B', EMPTY),
      encodeEntry('a', EMPTY),
      encodeEntry('a\x01', EMPTY),
    ),
    'same name in another directory': encodeNar(
      directory({ a: directory({ a: file('') }), b: directory({ a: file('') }) }),
    ),
    'names that differ in case only': encodeNar(directory({ A: file(''), a: file('') })),
    'target of 4095 bytes': link('t'.repeat(4095)),
    '63 directories in one another, and a file': encodeNar(nested(63)),
  };
  for (const [name, nar] of Object.entries(good)) {
    t.equal(verdict([nar]), 'accepted', name);
    t.equal(verdict(cut(nar, [1])), 'accepted', `${name}, byte by byte`);
  }
});

t.test('bad NARs are refused, however they are cut', async (t) => {
  const bad: Record<string, [code: string, nar: Buffer]> = {
    text: ['nar_bad_magic', Buffer.from('<html><body>404 Not Found</body></html>'.repeat(3))],
    'another version': ['nar_bad_magic', join('nix-archive-2', encodeNode(file('')))],
    nothing: ['nar_truncated', Buffer.alloc(0)],
    'only the magic': ['nar_truncated', join('nix-archive-1')],
    'a byte too much': ['nar_trailing', Buffer.concat([HELLO, Buffer.alloc(1)])],
    'two NARs': ['nar_trailing', Buffer.concat([HELLO, HELLO])],
    'empty name': ['nar_bad_name', root(encodeEntry('', EMPTY))],
    'name .': ['nar_bad_name', root(encodeEntry('.', EMPTY))],
    'name ..': ['nar_bad_name', root(encodeEntry('..', EMPTY))],
    'name with a slash': ['nar_bad_name', root(encodeEntry('a/b', EMPTY))],
    'absolute name': ['nar_bad_name', root(encodeEntry('/etc', EMPTY))],
    'name with NUL': ['nar_bad_name', root(encodeEntry('a\0b', EMPTY))],
    'name of 256 bytes': ['nar_bad_name', root(encodeEntry('n'.repeat(256), EMPTY))],
    'name of 2^64 - 1 bytes': ['nar_bad_name', root(join('entry', '(', 'name', HUGE, 'node', EMPTY, ')'))],
    'same name twice': ['nar_entry_order', root(encodeEntry('a', EMPTY), encodeEntry('a', EMPTY))],
    'names not in order': ['nar_entry_order', root(encodeEntry('b', EMPTY), encodeEntry('a', EMPTY))],
    'names in the order of letters': [
      'nar_entry_order',
      root(encodeEntry('a', EMPTY), encodeEntry('B', EMPTY)),
    ],
    'names not in order after a directory': [
      'nar_entry_order',
      root(encodeEntry('b', encodeNode(directory({ z: file('') }))), encodeEntry('a', EMPTY)),
    ],
    'executable after contents': ['nar_bad_tag', regular('contents', 'x', 'executable', '')],
    'executable twice': ['nar_bad_tag', regular('executable', '', 'executable', '', 'contents', 'x')],
    'executable with a value': ['nar_executable_marker', regular('executable', 'true', 'contents', 'x')],
    'file without contents': ['nar_bad_tag', root(encodeEntry('a', join('(', 'type', 'regular', ')')))],
    'executable without contents': [
      'nar_bad_tag',
      root(encodeEntry('a', join('(', 'type', 'regular', 'executable', '', ')'))),
    ],
    'contents twice': ['nar_bad_tag', regular('contents', 'x', 'contents', 'y')],
    'file of 2^64 - 1 bytes': ['nar_file_size', regular('contents', HUGE)],
    'name after node': ['nar_bad_tag', root(join('entry', '(', 'node', EMPTY, 'name', 'a', ')'))],
    'entry without name': ['nar_bad_tag', root(join('entry', '(', 'node', EMPTY, ')'))],
    'entry without node': [
      'nar_bad_tag',
      root(join('entry', '(', 'name', 'a', ')', encodeEntry('b', EMPTY))),
    ],
    'entry with two nodes': [
      'nar_bad_tag',
      root(join('entry', '(', 'name', 'a', 'node', EMPTY, 'node', EMPTY, ')')),
    ],
    'entry in a file': ['nar_bad_tag', regular(encodeEntry('a', EMPTY))],
    'unknown type': ['nar_bad_tag', join('nix-archive-1', '(', 'type', 'socket', ')', EMPTY)],
    'type that begins like a directory': [
      'nar_bad_tag',
      join('nix-archive-1', '(', 'type', 'directoxx', ')'),
    ],
    'no type': ['nar_bad_tag', join('nix-archive-1', '(', 'regular', 'contents', 'x', ')')],
    'tag of 2^64 - 1 bytes': [
      'nar_bad_tag',
      join('nix-archive-1', HUGE, 'type', 'regular', 'contents', 'x', ')'),
    ],
    'unknown field of a directory': ['nar_bad_tag', root(join('mode', '0755'))],
    'empty target': ['nar_symlink_target', link('')],
    'target with NUL': ['nar_symlink_target', link('a\0b')],
    'target of 4096 bytes': ['nar_symlink_target', link('t'.repeat(4096))],
    'target of 2^64 - 1 bytes': [
      'nar_symlink_target',
      join('nix-archive-1', '(', 'type', 'symlink', 'target', HUGE),
    ],
    'symlink without target': ['nar_bad_tag', join('nix-archive-1', '(', 'type', 'symlink', ')', EMPTY)],
    '64 directories in one another, and a file': ['nar_depth', encodeNar(nested(64))],
    '1,000 directories in one another': ['nar_depth', encodeNar(nested(1000))],
    'padding of contents': ['nar_padding', soiled(HELLO, 104)],
    'padding of a name': ['nar_padding', soiled(root(encodeEntry('name', EMPTY)), 24 + 56 + 56 + 8)],
    'padding of a target': ['nar_padding', soiled(link('abc'), 24 + 48 + 16 + 16)],
    'padding of a tag': ['nar_padding', soiled(HELLO, 40)],
    'padding of the last tag': ['nar_padding', soiled(HELLO, HELLO.length)],
    'padding of the magic': ['nar_bad_magic', soiled(HELLO, 24)],
  };
  for (const [name, [code, nar]] of Object.entries(bad)) {
    t.equal(verdict([nar]), code, name);
    t.equal(verdict(cut(nar, [1])), code, `${name}, byte by byte`);
    t.equal(verdict(cut(nar, [7, 100])), code, `${name}, in pieces`);
  }
});

t.test('a NAR cut off anywhere is truncated', async (t) => {
  const nar = encodeNar(
    directory({ a: file('hello', true), b: symlink('a'), c: directory({ d: file('') }) }),
  );
  const verdicts = new Set<string>();
  for (let size = 0; size < nar.length; size++) verdicts.add(verdict([nar.subarray(0, size)]));
  t.same([...verdicts], ['nar_truncated']);
  t.equal(verdict([nar]), 'accepted');
});

t.test('the message says where and what', async (t) => {
  const message = (nar: Buffer) => {
    try {
      new NarParser().write(nar);
    } catch (error) {
      return (error as Error).message;
    }
    return undefined;
  };
  t.match(message(regular('contents', 'x', 'executable', '')), /'\)' at byte 104/);
  t.match(message(root(encodeEntry('b', EMPTY), encodeEntry('a', EMPTY))), /"a" after "b"/);
});

t.test('what comes out is what went in, wherever it is cut', async (t) => {
  const sizes = fc.array(fc.integer({ min: 1, max: 300 }), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(trees(), sizes, (tree, sizes) => {
      const nar = encodeNar(tree);
      t.same(encodeNar(parseTree(cut(nar, sizes))), nar);
    }),
    { numRuns: 200 },
  );
});

t.test('no two sequences of bytes are the same tree', async (t) => {
  let accepted = 0;
  const change = fc.record({ at: fc.nat(), to: fc.oneof(fc.constantFrom(0, 1, 0x28, 0x29), fc.nat(255)) });
  fc.assert(
    fc.property(trees(), change, (tree, { at, to }) => {
      const nar = encodeNar(tree);
      nar[at % nar.length] = to;
      if (verdict([nar]) !== 'accepted') return;
      accepted++;
      t.ok(encodeNar(parseTree([nar])).equals(nar));
    }),
    { numRuns: 500 },
  );
  t.ok(accepted > 0);
});

t.test('offsets are where the contents are', async (t) => {
  const nar = encodeNar(
    directory({ a: file('first'), b: directory({ c: file('second', true) }), d: file('') }),
  );
  const seen: unknown[] = [];
  const parser = new NarParser({
    file: (name, { offset, size, executable }) =>
      seen.push([`${name}`, nar.toString('latin1', offset, offset + size), executable]),
  });
  for (const chunk of cut(nar, [5])) parser.write(chunk);
  parser.end();
  t.same(seen, [
    ['a', 'first', false],
    ['c', 'second', true],
    ['d', '', false],
  ]);
  new NarParser({ file: (_, { offset }) => t.equal(offset, 96) }).write(HELLO);
  new NarParser({ file: (_, { offset }) => t.equal(offset, 128) }).write(encodeNar(file('x', true)));
});

t.test('after an error there is nothing but the error', async (t) => {
  const parser = new NarParser();
  const bad = root(encodeEntry('..', EMPTY));
  t.throws(() => parser.write(bad), { code: 'nar_bad_name' });
  t.throws(() => parser.write(HELLO), { code: 'nar_bad_name' });
  t.throws(() => parser.end(), { code: 'nar_bad_name' });
  const own = new Error('enough');
  const stopped = new NarParser({
    file: () => {
      throw own;
    },
  });
  t.throws(() => stopped.write(HELLO), own);
  t.throws(() => stopped.end(), own);
});

t.test('a file of many gigabytes passes by counting', async (t) => {
  const chunk = Buffer.alloc(1 << 20);
  const count = 20_000;
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(chunk.length) * BigInt(count));
  let seen = 0;
  const parser = new NarParser({
    data: (data) => {
      seen += data.length;
    },
  });
  parser.write(join('nix-archive-1', '(', 'type', 'regular', 'contents', size));
  for (let i = 0; i < count; i++) parser.write(chunk);
  parser.write(str(')'));
  parser.end();
  t.equal(seen, chunk.length * count);
});
