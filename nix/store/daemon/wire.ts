import type { Readable } from 'node:stream';
import { StoreError } from '../../errors.ts';

/** Bytes of one string at most: a log line or an error; paths and signatures are far shorter. */
export const MAX_STRING = 16 << 20;
/** Entries of one list at most: references of a path, signatures, features. */
export const MAX_LIST = 1 << 20;

export type WireValue = number | string | readonly string[];

/** Numbers as 64 bits little-endian, texts as size, UTF-8 and zeros up to 8 bytes, lists as count and texts. */
export function encode(...values: readonly WireValue[]): Buffer {
  return Buffer.concat(
    values.map((value) => {
      if (typeof value === 'number') return encodeNumber(value);
      if (typeof value === 'string') return encodeText(value);
      return Buffer.concat([encodeNumber(value.length), ...value.map(encodeText)]);
    }),
  );
}

function encodeNumber(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function encodeText(text: string): Buffer {
  const size = Buffer.byteLength(text);
  const bytes = Buffer.alloc(8 + size + padding(size));
  bytes.writeBigUInt64LE(BigInt(size));
  bytes.write(text, 8);
  return bytes;
}

function padding(size: number): number {
  return (8 - (size % 8)) % 8;
}

/**
 * Reads the daemon's words from a stream. Every method throws StoreError: `daemon_closed` where the stream
 * ends, `daemon_timeout` where nothing comes for `timeout` milliseconds, `daemon_protocol` for bytes that
 * cannot be what they stand for.
 */
export class WireReader {
  /** Milliseconds without a byte until the other side is given up. */
  timeout: number;
  readonly #chunks: AsyncIterator<Buffer>;
  #chunk: Buffer = Buffer.alloc(0);

  constructor(input: Readable, timeout: number) {
    this.#chunks = input[Symbol.asyncIterator]();
    this.timeout = timeout;
  }

  /** A number that must be exact; what may be larger is skipped by {@link skip}. */
  async number(): Promise<number> {
    const value = (await this.#bytes(8)).readBigUInt64LE();
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw protocolError(`the number ${value} is too large`);
    return Number(value);
  }

  async boolean(): Promise<boolean> {
    return (await this.number()) !== 0;
  }

  async text(): Promise<string> {
    const size = await this.number();
    if (size > MAX_STRING) throw protocolError(`a text of ${size} bytes is too long`);
    return (await this.#bytes(size + padding(size))).toString('utf8', 0, size);
  }

  async texts(): Promise<string[]> {
    const count = await this.number();
    if (count > MAX_LIST) throw protocolError(`a list of ${count} entries is too long`);
    const texts: string[] = [];
    while (texts.length < count) texts.push(await this.text());
    return texts;
  }

  async skip(size: number): Promise<void> {
    await this.#bytes(size);
  }

  /** The bytes that are there, at least one and at most `max`. */
  async some(max: number): Promise<Buffer> {
    if (this.#chunk.length === 0) this.#chunk = await this.#next();
    return this.#take(max);
  }

  /** Puts bytes back before those that follow. */
  unread(bytes: Buffer): void {
    this.#chunk = Buffer.concat([bytes, this.#chunk]);
  }

  async #bytes(size: number): Promise<Buffer> {
    if (this.#chunk.length < size) {
      // Gathered as they come: a size alone makes nothing be allocated.
      const parts = [this.#chunk];
      for (let have = this.#chunk.length; have < size; ) {
        const part = await this.#next();
        parts.push(part);
        have += part.length;
      }
      this.#chunk = Buffer.concat(parts);
    }
    return this.#take(size);
  }

  #take(max: number): Buffer {
    const bytes = this.#chunk.subarray(0, max);
    this.#chunk = this.#chunk.subarray(bytes.length);
    return bytes;
  }

  async #next(): Promise<Buffer> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const error = new StoreError(
        'daemon_timeout',
        `the Nix daemon sent nothing for ${this.timeout / 1000} seconds`,
        { hint: 'Check the daemon, or restart it.' },
      );
      timer = setTimeout(() => reject(error), this.timeout);
    });
    try {
      const { value, done } = await Promise.race([this.#chunks.next(), late]);
      if (!done) return value;
    } catch (error) {
      if (error instanceof StoreError) throw error;
      throw closedError(error);
    } finally {
      clearTimeout(timer);
    }
    throw closedError();
  }
}

export function protocolError(why: string): StoreError {
  return new StoreError('daemon_protocol', `the Nix daemon does not speak as expected: ${why}`);
}

function closedError(cause?: unknown): StoreError {
  return new StoreError('daemon_closed', 'the Nix daemon closed the connection', {
    hint: "Its log says why: try 'journalctl -u nix-daemon'.",
    cause,
  });
}
