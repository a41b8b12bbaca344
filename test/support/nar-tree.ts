import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import fc from 'fast-check';
import { NarParser, type NarVisitor } from '../../nix/nar/parse.ts';

/** A file tree in memory. Names are bytes, a `latin1` character each. */
export type Tree =
  | { kind: 'file'; executable: boolean; contents: Buffer }
  | { kind: 'symlink'; target: Buffer }
  | { kind: 'directory'; entries: Record<string, Tree> };

export function file(contents: string | Buffer, executable = false): Tree {
  return { kind: 'file', executable, contents: Buffer.from(contents) };
}

export function symlink(target: string | Buffer): Tree {
  return { kind: 'symlink', target: Buffer.from(target) };
}

export function directory(entries: Record<string, Tree> = {}): Tree {
  return { kind: 'directory', entries };
}

/** Trees of every kind, with names that put the order of bytes to the test. */
export function trees(): fc.Arbitrary<Tree> {
  const bytes = (constraints: fc.IntArrayConstraints) =>
    fc.uint8Array(constraints).map((array) => Buffer.from(array));
  const name = fc
    .oneof(
      fc.string({
        unit: fc.constantFrom('a', 'A', 'b', '.', '-', '\x01', '\x7f', '\xff'),
        minLength: 1,
        maxLength: 6,
      }),
      bytes({ minLength: 1, maxLength: 255 }).map((buffer) => buffer.toString('latin1')),
      fc.constantFrom('__proto__', '0', '10', '9', 'x'.repeat(255)),
    )
    .filter((text) => !/[/\0]/.test(text) && !/^\.\.?$/.test(text));
  const target = bytes({ minLength: 1, maxLength: 100 }).filter((buffer) => !buffer.includes(0));
  return fc.letrec<{ tree: Tree }>((tie) => ({
    tree: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      fc.record({
        kind: fc.constant('file' as const),
        executable: fc.boolean(),
        contents: bytes({ maxLength: 40 }),
      }),
      fc.record({ kind: fc.constant('symlink' as const), target }),
      {
        weight: 5,
        arbitrary: fc.record({
          kind: fc.constant('directory' as const),
          entries: fc
            .uniqueArray(fc.tuple(name, tie('tree')), { maxLength: 6, selector: ([key]) => key })
            .map(toEntries),
        }),
      },
    ),
  })).tree;
}

/** Puts a tree on disk. */
export function writeTree(path: Buffer, tree: Tree): void {
  if (tree.kind === 'symlink') {
    symlinkSync(tree.target, path);
  } else if (tree.kind === 'file') {
    writeFileSync(path, tree.contents);
    chmodSync(path, tree.executable ? 0o755 : 0o644);
  } else {
    mkdirSync(path);
    for (const [name, entry] of Object.entries(tree.entries)) {
      writeTree(Buffer.concat([path, Buffer.from(`/${name}`, 'latin1')]), entry);
    }
  }
}

/** A text as a NAR has it, without a look at the code under test. */
export function str(text: string | Buffer): Buffer {
  const bytes = typeof text === 'string' ? Buffer.from(text, 'latin1') : text;
  const out = Buffer.alloc(8 + Math.ceil(bytes.length / 8) * 8);
  out.writeBigUInt64LE(BigInt(bytes.length));
  bytes.copy(out, 8);
  return out;
}

/** Joins texts, each as a NAR has it, and what is in bytes already. */
export function join(...parts: readonly (string | Buffer)[]): Buffer {
  return Buffer.concat(parts.map((part) => (typeof part === 'string' ? str(part) : part)));
}

export function encodeNode(tree: Tree): Buffer {
  if (tree.kind === 'symlink') return join('(', 'type', 'symlink', 'target', str(tree.target), ')');
  if (tree.kind === 'file') {
    const marker = tree.executable ? join('executable', '') : Buffer.alloc(0);
    return join('(', 'type', 'regular', marker, 'contents', str(tree.contents), ')');
  }
  const entries = Object.entries(tree.entries)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, entry]) => encodeEntry(name, encodeNode(entry)));
  return join('(', 'type', 'directory', ...entries, ')');
}

export function encodeEntry(name: string, node: Buffer): Buffer {
  return join('entry', '(', 'name', name, 'node', node, ')');
}

export function encodeNar(tree: Tree): Buffer {
  return join('nix-archive-1', encodeNode(tree));
}

/** Parses a NAR cut into `chunks`. What the offsets point at is checked on the way. */
export function parseTree(chunks: Iterable<Buffer>): Tree {
  const { visitor, root } = treeVisitor();
  const parser = new NarParser(visitor);
  for (const chunk of chunks) parser.write(chunk);
  parser.end();
  const tree = root();
  if (tree === undefined) throw new Error('the parser saw no root');
  return tree;
}

/** `bytes` in pieces of the given sizes, again and again. */
export function* cut(bytes: Buffer, sizes: readonly number[]): Generator<Buffer> {
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const size = sizes[i % sizes.length] ?? 1;
    // A copy that is wiped afterwards, so that nobody can keep a view into it.
    const chunk = Buffer.from(bytes.subarray(at, at + size));
    yield chunk;
    chunk.fill(0xee);
    at += size;
  }
}

function treeVisitor(): { visitor: NarVisitor; root: () => Tree | undefined } {
  const open: [string, Tree][][] = [[]];
  const names: (Buffer | undefined)[] = [];
  const add = (name: Buffer | undefined, tree: Tree) => {
    if ((name === undefined) !== (open.length === 1)) throw new Error('only the root has no name');
    open.at(-1)?.push([name?.toString('latin1') ?? '', tree]);
  };
  let contents = Buffer.alloc(0);
  let filled = 0;
  const visitor: NarVisitor = {
    directory: (name) => {
      names.push(name);
      open.push([]);
    },
    leave: () => {
      const entries = open.pop() ?? [];
      add(names.pop(), directory(toEntries(entries)));
    },
    file: (name, { executable, size }) => {
      contents = Buffer.alloc(size);
      filled = 0;
      add(name, { kind: 'file', executable, contents });
    },
    data: (chunk) => {
      if (chunk.length === 0 || filled + chunk.length > contents.length) throw new Error('a wrong chunk');
      contents.set(chunk, filled);
      filled += chunk.length;
    },
    symlink: (name, target) => add(name, symlink(target)),
  };
  return { visitor, root: () => open[0]?.[0]?.[1] };
}

function toEntries(entries: readonly [string, Tree][]): Record<string, Tree> {
  // No prototype, so that `__proto__` is a name as any other; sorted, so that trees compare.
  return Object.assign(
    Object.create(null),
    Object.fromEntries([...entries].sort(([a], [b]) => (a < b ? -1 : 1))),
  );
}
