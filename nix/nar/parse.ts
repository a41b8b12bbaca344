import { FormatError } from '../errors.ts';
import {
  CLOSE,
  CONTENTS,
  DIRECTORY,
  ENTRY,
  ENTRY_NAME,
  EXECUTABLE,
  expectTags,
  expectZeros,
  hasTags,
  MAGIC,
  MAX_NAME_SIZE,
  MAX_TARGET_SIZE,
  OPEN_ENTRY_NODE,
  OPEN_NODE,
  paddingOf,
  REGULAR,
  readSize,
  SYMLINK,
  TARGET,
} from './grammar.ts';

/**
 * Is told what a NAR holds, in the order of its bytes. `name` is the name inside the directory above,
 * undefined for the root; it may be kept.
 */
export interface NarVisitor {
  /** A directory begins; what follows is inside it, until {@link leave}. */
  directory?(name: Buffer | undefined): void;
  /** The directory begun last is over. */
  leave?(): void;
  /** A file of `size` bytes begins; `offset` is the place of its first byte in the NAR. */
  file?(name: Buffer | undefined, info: { executable: boolean; size: number; offset: number }): void;
  /** The next bytes of the file, never none: a view into what was written to the parser. */
  data?(chunk: Uint8Array): void;
  symlink?(name: Buffer | undefined, target: Buffer): void;
}

/** The kinds are told apart by as many bytes as the shortest has. */
const DIRECTORY_HEAD = DIRECTORY.subarray(0, REGULAR.length);
const DIRECTORY_TAIL = DIRECTORY.subarray(REGULAR.length);
/** A node's end, and that of the entry around it. */
const CLOSE_BOTH = Buffer.concat([CLOSE, CLOSE]);
const DOT = 0x2e;
const SLASH = 0x2f;

/** Directories above a node at most: newer Nix does not unpack what is deeper. */
const MAX_DEPTH = 63;

type Step = (bytes: Uint8Array, at: number) => void;

/**
 * Checks a NAR's grammar while it is pushed through in chunks that may be cut anywhere. Keeps a few KiB
 * whatever the size of the NAR.
 *
 * What it refuses, with FormatError: `nar_bad_magic`, `nar_bad_tag`, `nar_bad_name`, `nar_entry_order`
 * (names not strictly increasing byte by byte), `nar_executable_marker`, `nar_file_size`,
 * `nar_symlink_target`, `nar_depth`, `nar_padding`, `nar_truncated`, `nar_trailing`.
 */
export class NarParser {
  readonly #visitor: NarVisitor;
  /** The name seen last in each open directory. */
  readonly #names: (Buffer | undefined)[] = [];
  /** A piece of which the chunks so far held only the beginning. */
  readonly #piece = Buffer.allocUnsafe(MAX_TARGET_SIZE + 64);
  #held = 0;
  /** What takes the next piece, of `#need` bytes, at its place in a chunk. */
  #step: Step = this.#magic;
  #need = MAGIC.length;
  /** Bytes of the NAR before the piece that is waited for. */
  #offset = 0;
  /** Bytes of file contents that are still to pass. */
  #data = 0;
  /** Of the name or target that follows. */
  #size = 0;
  /** Zeros before the closing tags, and the tags. */
  #padding = 0;
  #closing = CLOSE;
  #executable = false;
  #failure: unknown;

  constructor(visitor: NarVisitor = {}) {
    this.#visitor = visitor;
  }

  /** @throws FormatError, or what the visitor throws; from then on every call throws the same. */
  write(chunk: Uint8Array): void {
    if (this.#failure !== undefined) throw this.#failure;
    try {
      this.#parse(chunk);
    } catch (error) {
      this.#failure = error;
      throw error;
    }
  }

  /** Says that there are no more bytes. @throws FormatError if the NAR is not complete. */
  end(): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#step !== this.#trailing) {
      throw new FormatError('nar_truncated', `the NAR breaks off after ${this.#offset + this.#held} bytes`);
    }
  }

  #parse(chunk: Uint8Array): void {
    let at = 0;
    while (at < chunk.length) {
      const left = chunk.length - at;
      const need = this.#need;
      if (this.#data > 0) {
        const size = Math.min(this.#data, left);
        this.#visitor.data?.(chunk.subarray(at, at + size));
        this.#data -= size;
        this.#offset += size;
        at += size;
      } else if (this.#held === 0 && left >= need) {
        this.#step(chunk, at);
        this.#offset += need;
        at += need;
      } else {
        const size = Math.min(need - this.#held, left);
        this.#piece.set(chunk.subarray(at, at + size), this.#held);
        this.#held += size;
        at += size;
        if (this.#held === need) {
          this.#held = 0;
          this.#step(this.#piece, 0);
          this.#offset += need;
        }
      }
    }
  }

  #await(step: Step, need: number): void {
    this.#step = step;
    this.#need = need;
  }

  #magic(bytes: Uint8Array, at: number): void {
    if (!hasTags(bytes, at, MAGIC)) {
      throw new FormatError('nar_bad_magic', "this is no NAR: it does not begin with 'nix-archive-1'");
    }
    this.#await(this.#node, OPEN_NODE.length + REGULAR.length);
  }

  #node(bytes: Uint8Array, at: number): void {
    const open = this.#names.length === 0 ? OPEN_NODE : OPEN_ENTRY_NODE;
    expectTags(bytes, at, open, this.#offset);
    const kind = at + open.length;
    if (hasTags(bytes, kind, REGULAR)) {
      this.#executable = false;
      this.#await(this.#regular, EXECUTABLE.length);
    } else if (hasTags(bytes, kind, SYMLINK)) {
      this.#await(this.#targetSize, TARGET.length + 8);
    } else if (hasTags(bytes, kind, DIRECTORY_HEAD)) {
      this.#await(this.#directory, DIRECTORY_TAIL.length);
    } else {
      throw unknownType(this.#offset + open.length);
    }
  }

  #directory(bytes: Uint8Array, at: number): void {
    if (!hasTags(bytes, at, DIRECTORY_TAIL)) throw unknownType(this.#offset - DIRECTORY_HEAD.length);
    this.#visitor.directory?.(this.#names.at(-1));
    this.#names.push(undefined);
    this.#await(this.#entry, ENTRY.length);
  }

  #entry(bytes: Uint8Array, at: number): void {
    if (hasTags(bytes, at, ENTRY)) {
      if (this.#names.length > MAX_DEPTH) {
        throw new FormatError('nar_depth', `the NAR has more than ${MAX_DEPTH} directories in one another`);
      }
      this.#await(this.#nameSize, ENTRY_NAME.length + 8);
      return;
    }
    expectTags(bytes, at, CLOSE, this.#offset);
    this.#names.pop();
    this.#visitor.leave?.();
    if (this.#names.length === 0) this.#await(this.#trailing, 1);
    else this.#awaitClose(0, CLOSE);
  }

  #nameSize(bytes: Uint8Array, at: number): void {
    expectTags(bytes, at, ENTRY_NAME, this.#offset);
    this.#size = readSize(bytes, at + ENTRY_NAME.length);
    if (this.#size < 1 || this.#size > MAX_NAME_SIZE) {
      const text = `the NAR has a name of ${this.#size} bytes; 1 to ${MAX_NAME_SIZE} are possible`;
      throw new FormatError('nar_bad_name', text);
    }
    this.#await(this.#name, this.#size + paddingOf(this.#size));
  }

  #name(bytes: Uint8Array, at: number): void {
    const name = Buffer.from(bytes.subarray(at, at + this.#size));
    expectZeros(bytes, at + this.#size, paddingOf(this.#size), this.#offset + this.#size);
    if (!isFileName(name)) {
      throw new FormatError('nar_bad_name', `the NAR has ${quote(name)} for a name`);
    }
    const above = this.#names.length - 1;
    const before = this.#names[above];
    if (before !== undefined && before.compare(name) >= 0) {
      const text = `the NAR has ${quote(name)} after ${quote(before)}; names must be in the order of their bytes`;
      throw new FormatError('nar_entry_order', text);
    }
    this.#names[above] = name;
    this.#await(this.#node, OPEN_ENTRY_NODE.length + REGULAR.length);
  }

  /** Either a tag, or a shorter tag and the size behind it: the same bytes. */
  #regular(bytes: Uint8Array, at: number): void {
    if (hasTags(bytes, at, EXECUTABLE)) {
      this.#executable = true;
      this.#await(this.#marker, 8);
    } else {
      this.#contents(bytes, at);
    }
  }

  #marker(bytes: Uint8Array, at: number): void {
    if (readSize(bytes, at) !== 0) {
      throw new FormatError('nar_executable_marker', "the NAR has an 'executable' that is not empty");
    }
    this.#await(this.#contents, CONTENTS.length + 8);
  }

  #contents(bytes: Uint8Array, at: number): void {
    expectTags(bytes, at, CONTENTS, this.#offset);
    const size = readSize(bytes, at + CONTENTS.length);
    const offset = this.#offset + CONTENTS.length + 8;
    if (!Number.isSafeInteger(offset + size)) {
      throw new FormatError('nar_file_size', `the NAR has a file of impossible size at byte ${offset - 8}`);
    }
    this.#visitor.file?.(this.#names.at(-1), { executable: this.#executable, size, offset });
    this.#data = size;
    this.#awaitClose(paddingOf(size), this.#names.length === 0 ? CLOSE : CLOSE_BOTH);
  }

  #targetSize(bytes: Uint8Array, at: number): void {
    expectTags(bytes, at, TARGET, this.#offset);
    this.#size = readSize(bytes, at + TARGET.length);
    if (this.#size < 1 || this.#size > MAX_TARGET_SIZE) {
      const text = `the NAR has a symlink's target of ${this.#size} bytes; 1 to ${MAX_TARGET_SIZE} are possible`;
      throw new FormatError('nar_symlink_target', text);
    }
    this.#await(this.#target, this.#size + paddingOf(this.#size));
  }

  #target(bytes: Uint8Array, at: number): void {
    const target = Buffer.from(bytes.subarray(at, at + this.#size));
    expectZeros(bytes, at + this.#size, paddingOf(this.#size), this.#offset + this.#size);
    if (target.includes(0)) {
      throw new FormatError('nar_symlink_target', "the NAR has a symlink's target with a NUL in it");
    }
    this.#visitor.symlink?.(this.#names.at(-1), target);
    this.#awaitClose(0, this.#names.length === 0 ? CLOSE : CLOSE_BOTH);
  }

  #awaitClose(padding: number, tags: Buffer): void {
    this.#padding = padding;
    this.#closing = tags;
    this.#await(this.#close, padding + tags.length);
  }

  #close(bytes: Uint8Array, at: number): void {
    expectZeros(bytes, at, this.#padding, this.#offset);
    expectTags(bytes, at + this.#padding, this.#closing, this.#offset + this.#padding);
    if (this.#names.length === 0) this.#await(this.#trailing, 1);
    else this.#await(this.#entry, ENTRY.length);
  }

  #trailing(): void {
    throw new FormatError('nar_trailing', `there are bytes behind the NAR's end at ${this.#offset}`);
  }
}

function unknownType(offset: number): FormatError {
  return new FormatError('nar_bad_tag', `the NAR has a node of unknown type at byte ${offset}`);
}

function isFileName(name: Buffer): boolean {
  if (name[0] === DOT && (name.length === 1 || (name.length === 2 && name[1] === DOT))) return false;
  for (let i = 0; i < name.length; i++) if (name[i] === SLASH || name[i] === 0) return false;
  return true;
}

function quote(name: Buffer): string {
  return JSON.stringify(name.toString());
}
