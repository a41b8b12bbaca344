import { createHash, type Hash } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { CHUNK_SIZE } from '../compression/limits.ts';
import type { Compression } from '../compression/names.ts';
import { createDecompressor } from '../compression/streams.ts';

import { BcacheError, FormatError } from '../errors.ts';
import { freeNow } from '../free-now.ts';
import { type Sha256, sha256FromBytes } from '../hash.ts';
import type { StorePathHash } from '../store-path.ts';
import { type ContentHash, createContentHash } from './content-hash.ts';
import { NarParser, type NarVisitor } from './parse.ts';

/** What the bytes of a NAR turned out to be. */
export interface NarDigest {
  readonly narHash: Sha256;
  /** Bytes of the uncompressed NAR. */
  readonly narSize: number;
  /** The raw digest that the content address of the options names; undefined without one or for `git:`. */
  readonly contentHash?: Buffer | undefined;
}

export interface VerifyOptions {
  /** Bytes of the uncompressed NAR at most; more is `nar_too_large`. */
  readonly maxNarSize?: number | undefined;
  /** Is told what the NAR holds while it passes. */
  readonly visitor?: NarVisitor | undefined;
  /** A narinfo's `CA`: has {@link NarDigest.contentHash} computed. */
  readonly contentAddress?: string | undefined;
  /** The path's own hash part where it refers to itself: the content hash then leaves it out. */
  readonly selfReference?: StorePathHash | undefined;
}

/**
 * Checks a compressed NAR in one pass, chunk by chunk: the compression, the grammar, the size; and
 * computes its hashes. It compares them with nothing: that is for the caller.
 *
 * Every failure is a FormatError, `compression_*` or `nar_*`, or whatever the visitor throws.
 */
export class NarVerifier {
  readonly #decompressor: Duplex | undefined;
  readonly #parser: NarParser;
  readonly #hash: Hash = createHash('sha256');
  readonly #content: ContentHash | undefined;
  readonly #maxSize: number;
  readonly #nodeCodec: boolean;
  readonly #ended: Promise<void>;
  #size = 0;
  #settle: (() => void) | undefined;
  #drained: (() => void) | undefined;
  #error: Error | undefined;

  /** @throws FormatError for a malformed content address */
  constructor(compression: Compression, options: VerifyOptions = {}) {
    this.#maxSize = options.maxNarSize ?? Number.MAX_SAFE_INTEGER;
    if (options.contentAddress !== undefined) {
      this.#content = createContentHash(options.contentAddress, options.selfReference);
    }
    this.#parser = new NarParser(this.#content?.visitor(options.visitor) ?? options.visitor);
    this.#ended = new Promise((resolve) => {
      this.#settle = resolve;
    });
    this.#nodeCodec = compression === 'zstd' || compression === 'br';
    // A PassThrough would only cost.
    if (compression !== 'none') this.#decompressor = this.#listen(createDecompressor(compression));
  }

  /**
   * Takes the next compressed bytes; resolves when there is room for more.
   *
   * @param chunk must not change until then, or ever if it has less than {@link CHUNK_SIZE} bytes: smaller ones
   *   may wait to be taken together.
   * @throws FormatError as soon as something is found to be wrong, perhaps with an earlier chunk.
   */
  write(chunk: Buffer): Promise<void> {
    if (this.#error === undefined) {
      if (this.#decompressor === undefined) this.#take(chunk);
      else if (!this.#decompressor.write(chunk)) return this.#room();
    }
    return this.#error === undefined ? Promise.resolve() : Promise.reject(this.#error);
  }

  /** Ends the input. @throws FormatError */
  async finish(): Promise<NarDigest> {
    if (this.#error === undefined && this.#decompressor !== undefined) {
      this.#decompressor.end();
      await this.#ended;
    }
    if (this.#error !== undefined) throw this.#error;
    this.#parser.end();
    const digest = this.#hash.digest();
    return {
      narHash: sha256FromBytes(digest),
      narSize: this.#size,
      contentHash: this.#content?.digest(digest),
    };
  }

  /** Lets go of everything; harmless after {@link finish}. What is pending fails with `nar_aborted`. */
  destroy(): void {
    this.#fail(new BcacheError('nar_aborted', 'the check of the NAR was broken off'));
  }

  #listen(decompressor: Duplex): Duplex {
    // Not at once: the decompressor starts on its next chunk first, and that on another thread.
    decompressor.on('data', (chunk: Buffer) =>
      process.nextTick(() => {
        this.#take(chunk);
        // Node's codecs fill a buffer piece by piece and take a new one when it is full.
        if (this.#nodeCodec && chunk.byteOffset + chunk.length === chunk.buffer.byteLength) {
          freeNow(chunk.buffer);
        }
      }),
    );
    decompressor.on('error', (error) => this.#fail(error));
    decompressor.on('end', () => this.#wake());
    decompressor.on('drain', () => this.#drained?.());
    return decompressor;
  }

  #take(chunk: Buffer): void {
    if (this.#error !== undefined) return;
    this.#size += chunk.length;
    try {
      if (this.#size > this.#maxSize) {
        throw new FormatError('nar_too_large', `the NAR has more than ${this.#maxSize} bytes`);
      }
      // The grammar first: what is no NAR is not worth hashing.
      this.#parser.write(chunk);
      this.#hash.update(chunk);
      this.#content?.update(chunk);
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  async #room(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#drained = resolve;
    });
    this.#drained = undefined;
    if (this.#error !== undefined) throw this.#error;
  }

  #fail(error: Error): void {
    if (this.#error !== undefined) return;
    this.#error = error;
    this.#decompressor?.destroy();
    this.#wake();
  }

  #wake(): void {
    this.#drained?.();
    this.#settle?.();
  }
}

/**
 * Checks a whole NAR.
 *
 * @throws FormatError as {@link NarVerifier}, and whatever reading `source` throws
 */
export async function verifyNar(
  source: AsyncIterable<Buffer>,
  compression: Compression,
  options: VerifyOptions = {},
): Promise<NarDigest> {
  const verifier = new NarVerifier(compression, options);
  try {
    for await (const chunk of source) await verifier.write(chunk);
    return await verifier.finish();
  } finally {
    verifier.destroy();
  }
}
