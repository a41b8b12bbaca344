import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readlinkSync,
  type StatsBase,
} from 'node:fs';
import { BcacheError, StoreError } from '../errors.ts';
import { BlockWriter, NAR_BLOCK_SIZE } from './block-writer.ts';
import { encodeStrings } from './grammar.ts';

export interface WriteNarOptions {
  /** Bytes of a block, 2 MiB if not given. */
  readonly blockSize?: number;
  /** Gives the memory for the next block, at least `blockSize` bytes. */
  readonly allocate?: () => Buffer;
  /**
   * Whether names on disk may carry the suffix by which Nix keeps apart what differs in case only; so on
   * macOS if not given.
   */
  readonly caseHack?: boolean;
}

const ROOT = encodeStrings('nix-archive-1', '(', 'type');
const ENTRY = encodeStrings('entry', '(', 'name');
const NODE = encodeStrings('node', '(', 'type');
const DIRECTORY = encodeStrings('directory');
const REGULAR = encodeStrings('regular', 'contents');
const EXECUTABLE = encodeStrings('regular', 'executable', '', 'contents');
const SYMLINK = encodeStrings('symlink', 'target');
const CLOSE = encodeStrings(')');
const CLOSE_ENTRY = encodeStrings(')', ')');
const SLASH = Buffer.from('/');
const CASE_HACK = '~nix~case~hack~';
const OWNER_EXECUTES = 0o100;

interface Entry {
  /** In the NAR. */
  readonly name: Buffer;
  /** On disk. */
  readonly path: Buffer;
  readonly kind: Pick<StatsBase<number>, 'isDirectory' | 'isFile' | 'isSymbolicLink'>;
}

/**
 * Dumps the file, directory or symlink at `root` as a NAR, in blocks of exactly `blockSize` bytes but for
 * the last. It reads synchronously, so it belongs in a worker thread.
 *
 * @throws StoreError `nar_unsupported_file`, `nar_file_changed`, `nar_case_collision`, `nar_unreadable`
 */
export function* writeNar(root: string, options: WriteNarOptions = {}): Generator<Buffer, void, undefined> {
  const { blockSize = NAR_BLOCK_SIZE, allocate = () => Buffer.allocUnsafeSlow(blockSize) } = options;
  const out = new BlockWriter(blockSize, allocate);
  try {
    yield* dump(Buffer.from(root), out, options.caseHack ?? process.platform === 'darwin');
  } catch (error) {
    if (error instanceof BcacheError) throw error;
    const reason = (error as Error).message;
    throw new StoreError('nar_unreadable', `'${root}' cannot be read: ${reason}`, { cause: error });
  }
  yield out.take();
}

function* dump(root: Buffer, out: BlockWriter, caseHack: boolean): Generator<Buffer, void, undefined> {
  // What is still to dump of each open directory, the next entry last.
  const open: Entry[][] = [];
  let entry: Entry | undefined = { name: root, path: root, kind: lstatSync(root) };
  out.put(ROOT);
  for (;;) {
    if (entry) {
      if (open.length > 0) {
        out.put(ENTRY);
        out.putString(entry.name);
        out.put(NODE);
      }
      const { path, kind } = entry;
      if (kind.isDirectory()) {
        out.put(DIRECTORY);
        open.push(list(path, caseHack));
      } else {
        if (kind.isFile()) yield* dumpFile(path, out);
        else if (kind.isSymbolicLink()) dumpSymlink(path, out);
        else throw new StoreError('nar_unsupported_file', `'${path}' is no file, directory or symlink`);
        out.put(open.length > 0 ? CLOSE_ENTRY : CLOSE);
      }
    } else {
      open.pop();
      out.put(open.length > 0 ? CLOSE_ENTRY : CLOSE);
    }
    while (!out.flush()) yield out.take();
    if (open.length === 0) return;
    entry = open.at(-1)?.pop();
  }
}

function* dumpFile(path: Buffer, out: BlockWriter): Generator<Buffer, void, undefined> {
  const file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const { mode, size } = fstatSync(file);
    out.put(mode & OWNER_EXECUTES ? EXECUTABLE : REGULAR);
    out.putSize(size);
    while (!out.flush()) yield out.take();
    for (let left = size; left > 0; ) {
      if (out.room === 0) yield out.take();
      // It reads on to the file's end, or the block's, so that it can see if the file has grown.
      const read = out.read(file);
      if (read === 0 || read > left) {
        throw new StoreError('nar_file_changed', `'${path}' changed its size while it was read`);
      }
      left -= read;
    }
    out.putPadding(size);
  } finally {
    closeSync(file);
  }
}

function dumpSymlink(path: Buffer, out: BlockWriter): void {
  out.put(SYMLINK);
  out.putString(readlinkSync(path, { encoding: 'buffer' }));
}

/** What a directory holds, the first entry last. */
function list(directory: Buffer, caseHack: boolean): Entry[] {
  const entries = readdirSync(directory, { encoding: 'buffer', withFileTypes: true }).map((kind): Entry => {
    const path = Buffer.concat([directory, SLASH, kind.name]);
    const suffix = caseHack ? kind.name.indexOf(CASE_HACK) : -1;
    return { name: suffix < 0 ? kind.name : kind.name.subarray(0, suffix), path, kind };
  });
  entries.sort((a, b) => b.name.compare(a.name));
  if (caseHack) refuseDoubles(entries);
  return entries;
}

function refuseDoubles(entries: readonly Entry[]): void {
  for (const [i, { name, path }] of entries.entries()) {
    if (entries[i + 1]?.name.equals(name)) {
      throw new StoreError('nar_case_collision', `another name than '${path}' comes to the same in a NAR`);
    }
  }
}
