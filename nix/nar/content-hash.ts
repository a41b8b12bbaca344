import { createHash, type Hash } from 'node:crypto';
import { parseContentAddress } from '../content-address.ts';
import { FormatError } from '../errors.ts';
import type { StorePathHash } from '../store-path.ts';
import type { NarVisitor } from './parse.ts';

/** Computes the digest a content address names while the NAR passes. */
export interface ContentHash {
  /** What the parser is to be given instead of `inner`. */
  visitor(inner: NarVisitor | undefined): NarVisitor | undefined;
  /** The next bytes of the NAR. */
  update(chunk: Buffer): void;
  /** @param narDigest the NAR's SHA-256 */
  digest(narDigest: Buffer): Buffer | undefined;
}

/**
 * @param selfReference the path's hash part where it refers to itself
 * @throws FormatError
 */
export function createContentHash(
  contentAddress: string,
  selfReference: StorePathHash | undefined,
): ContentHash | undefined {
  const { method, algorithm } = parseContentAddress(contentAddress);
  if (method === 'git') return undefined;
  if (method !== 'nar') return new FlatHash(createHash(algorithm));
  if (selfReference !== undefined) return new ModuloHash(createHash(algorithm), selfReference);
  return new NarHash(algorithm === 'sha256' ? undefined : createHash(algorithm));
}

/** Of the NAR itself. */
class NarHash implements ContentHash {
  readonly #hash: Hash | undefined;

  constructor(hash: Hash | undefined) {
    this.#hash = hash;
  }

  visitor(inner: NarVisitor | undefined): NarVisitor | undefined {
    return inner;
  }

  update(chunk: Buffer): void {
    this.#hash?.update(chunk);
  }

  digest(narDigest: Buffer): Buffer {
    return this.#hash?.digest() ?? narDigest;
  }
}

/** Of the one plain file that the NAR holds. */
class FlatHash implements ContentHash {
  readonly #hash: Hash;

  constructor(hash: Hash) {
    this.#hash = hash;
  }

  /** The visitor throws FormatError `nar_not_flat` for anything but one file that is not executable. */
  visitor(inner: NarVisitor | undefined): NarVisitor {
    const notFlat = (): never => {
      throw new FormatError(
        'nar_not_flat',
        'the content address is for a plain file, and the NAR holds more',
      );
    };
    return {
      directory: notFlat,
      symlink: notFlat,
      file: (name, info) => {
        if (info.executable) notFlat();
        inner?.file?.(name, info);
      },
      data: (chunk) => {
        this.#hash.update(chunk);
        inner?.data?.(chunk);
      },
    };
  }

  update(): void {}

  digest(): Buffer {
    return this.#hash.digest();
  }
}

/**
 * Of the NAR without the path's own hash part, which depends on the digest: zeros stand in its places,
 * and behind everything each place is named.
 */
class ModuloHash implements ContentHash {
  readonly #hash: Hash;
  readonly #self: string;
  readonly #places: number[] = [];
  #carry = Buffer.alloc(0);
  #offset = 0;

  constructor(hash: Hash, self: string) {
    this.#hash = hash;
    this.#self = self;
  }

  visitor(inner: NarVisitor | undefined): NarVisitor | undefined {
    return inner;
  }

  update(chunk: Buffer): void {
    const text = Buffer.concat([this.#carry, chunk]);
    const { length } = this.#self;
    for (let at = text.indexOf(this.#self); at >= 0; at = text.indexOf(this.#self, at + length)) {
      this.#places.push(this.#offset + at);
      text.fill(0, at, at + length);
    }
    // What could be the beginning of one more stays for the next chunk.
    const sure = Math.max(0, text.length - length + 1);
    this.#hash.update(text.subarray(0, sure));
    this.#carry = text.subarray(sure);
    this.#offset += sure;
  }

  digest(): Buffer {
    this.#hash.update(this.#carry);
    for (const place of this.#places) this.#hash.update(`|${place}`);
    return this.#hash.digest();
  }
}
