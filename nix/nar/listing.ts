import { isUtf8 } from 'node:buffer';
import type { NarVisitor } from './parse.ts';

/** What Nix keeps in a cache as `<hash>.ls`. */
export interface NarListing {
  readonly version: 1;
  readonly root: ListingNode;
}

export type ListingNode =
  | { readonly type: 'directory'; readonly entries: Record<string, ListingNode> }
  | {
      readonly type: 'regular';
      /** Bytes. */
      readonly size: number;
      readonly executable: boolean;
      /** The place of the first byte in the uncompressed NAR. */
      readonly narOffset: number;
    }
  | { readonly type: 'symlink'; readonly target: string };

const MAX_ENTRIES = 1_000_000;

/** Lists a NAR while a parser goes through it. */
export class ListingBuilder {
  /** To be given to the parser. */
  readonly visitor: NarVisitor = {
    directory: (name) => {
      const entries: Record<string, ListingNode> = Object.create(null);
      this.#add(name, { type: 'directory', entries });
      this.#open.push(entries);
    },
    leave: () => {
      this.#open.pop();
    },
    file: (name, { size, executable, offset }) =>
      this.#add(name, { type: 'regular', size, executable, narOffset: offset }),
    symlink: (name, target) => {
      if (isUtf8(target)) this.#add(name, { type: 'symlink', target: target.toString() });
      else this.#impossible = true;
    },
  };
  readonly #maxEntries: number;
  readonly #open: Record<string, ListingNode>[] = [];
  #root: ListingNode | undefined;
  #entries = 0;
  #impossible = false;

  constructor(options: { maxEntries?: number } = {}) {
    this.#maxEntries = options.maxEntries ?? MAX_ENTRIES;
  }

  /**
   * The listing once the parser is through. Undefined where JSON cannot say a name or target, as it is not
   * UTF-8, and for more than `maxEntries` nodes, a million if not given.
   */
  listing(): NarListing | undefined {
    return this.#root && !this.#impossible ? { version: 1, root: this.#root } : undefined;
  }

  #add(name: Buffer | undefined, node: ListingNode): void {
    this.#entries++;
    if (this.#entries > this.#maxEntries || (name && !isUtf8(name))) this.#impossible = true;
    if (this.#impossible) return;
    const directory = this.#open.at(-1);
    if (name && directory) directory[name.toString()] = node;
    else this.#root = node;
  }
}
