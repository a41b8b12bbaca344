import type { Readable, Writable } from 'node:stream';
import { StoreError } from '../../errors.ts';
import { DaemonError, readMessages } from './messages.ts';
import { encode, protocolError, WireReader, type WireValue } from './wire.ts';

/** The two directions to a daemon, and how to end them. */
export interface Transport {
  readonly input: Readable;
  readonly output: Writable;
  close(): void;
}

export interface ConnectionOptions {
  /** Milliseconds for each of the daemon's answers while connecting; 10,000 unless given. */
  readonly handshakeTimeout?: number;
  /** Milliseconds without a byte while an answer is due; 120,000 unless given: collecting garbage takes time. */
  readonly timeout?: number;
}

const CLIENT_MAGIC = 0x6e697863;
const SERVER_MAGIC = 0x6478696f;
/** 1.38, of Nix 2.24 and newer. */
const NEWEST = 0x126;
/** 1.21, of Nix 2.1. */
const OLDEST = 0x115;
const HAS_VERSION = 0x121;
const HAS_TRUST = 0x123;
const HAS_FEATURES = 0x126;

/**
 * A connection to a Nix daemon over the worker protocol, 1.21 to 1.38.
 *
 * {@link request} may be called again before the answer: requests go out at once, and the daemon answers
 * in order.
 */
export class DaemonConnection {
  /** What both sides speak: `major << 8 | minor`. */
  readonly version: number;
  /** Of the daemon's Nix, where it tells. */
  readonly nixVersion: string | undefined;
  readonly #transport: Transport;
  readonly #reader: WireReader;
  #broken: unknown;
  #last: Promise<unknown> = Promise.resolve();

  private constructor(
    transport: Transport,
    reader: WireReader,
    { version, nixVersion }: { version: number; nixVersion: string | undefined },
  ) {
    this.#transport = transport;
    this.#reader = reader;
    this.version = version;
    this.nixVersion = nixVersion;
  }

  /** Shakes hands. Closes the transport where that fails. @throws StoreError */
  static async open(transport: Transport, options: ConnectionOptions = {}): Promise<DaemonConnection> {
    // Where writing fails, reading does too, and reports it.
    transport.output.on('error', () => {});
    transport.input.on('error', () => {});
    const reader = new WireReader(transport.input, options.handshakeTimeout ?? 10_000);
    try {
      const agreed = await shakeHands(transport.output, reader);
      reader.timeout = options.timeout ?? 120_000;
      return new DaemonConnection(transport, reader, agreed);
    } catch (error) {
      transport.close();
      throw error;
    }
  }

  /** Whether nothing can be asked any more. */
  get broken(): boolean {
    return this.#broken !== undefined;
  }

  /**
   * Sends an operation; `read` takes what the daemon answers.
   *
   * @throws StoreError: a {@link DaemonError} where the daemon refuses, else the connection is broken
   */
  request<T>(
    operation: number,
    values: readonly WireValue[],
    read: (reader: WireReader) => Promise<T>,
  ): Promise<T> {
    if (this.#broken !== undefined) return Promise.reject(this.#broken);
    this.#transport.output.write(encode(operation, ...values));
    const answer = this.#last.then(() => this.#receive(read));
    this.#last = answer.catch(() => {});
    return answer;
  }

  close(): void {
    this.#broken ??= new StoreError('store_closed', 'the connection to the Nix daemon was closed');
    this.#transport.close();
  }

  async #receive<T>(read: (reader: WireReader) => Promise<T>): Promise<T> {
    if (this.#broken !== undefined) throw this.#broken;
    try {
      await readMessages(this.#reader, this.version);
      return await read(this.#reader);
    } catch (error) {
      if (error instanceof DaemonError) throw error;
      this.#broken ??= error;
      this.#transport.close();
      throw this.#broken;
    }
  }
}

async function shakeHands(
  output: Writable,
  reader: WireReader,
): Promise<{ version: number; nixVersion: string | undefined }> {
  output.write(encode(CLIENT_MAGIC, NEWEST));
  if ((await reader.number()) !== SERVER_MAGIC) throw protocolError('it is no Nix daemon');
  const offered = await reader.number();
  if (offered >> 8 !== NEWEST >> 8 || offered < OLDEST) {
    throw new StoreError(
      'daemon_version',
      `the Nix daemon speaks protocol ${offered >> 8}.${offered & 0xff}, which is not supported`,
      { hint: 'Nix 2.1 or newer is needed.' },
    );
  }
  const version = Math.min(offered, NEWEST);
  if (version >= HAS_FEATURES) {
    output.write(encode([]));
    await reader.texts();
  }
  // No CPU to be bound to, no space to be reserved: of historical interest.
  output.write(encode(0, 0));
  const nixVersion = version >= HAS_VERSION ? await reader.text() : undefined;
  if (version >= HAS_TRUST) await reader.number();
  await readMessages(reader, version);
  return { version, nixVersion };
}
