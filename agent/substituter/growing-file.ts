import { type FileHandle, open } from 'node:fs/promises';
import type { NarBytes } from './nar-bytes.ts';

/** The end of every file that is kept back until the whole is verified. */
const HELD_BACK = 64 << 10;

/**
 * A file that one writer appends to while any number of readers follow it.
 *
 * Every reader reads the file itself, so a slow one costs neither memory nor the writer's time. No reader
 * is given the last {@link HELD_BACK} bytes before {@link seal} says that the contents are right: a file
 * that turns out wrong is never handed out whole.
 */
export class GrowingFile {
  readonly path: string;
  /** Bytes that the file will have; undefined where the sender did not say. */
  readonly expectedSize: number | undefined;
  readonly #handle: FileHandle;
  #written = 0;
  #state: 'growing' | 'sealed' | 'failed' = 'growing';
  #failure: unknown;
  #change = Promise.withResolvers<void>();
  /** The writer and each reader hold the handle open. */
  #holders = 1;

  private constructor(path: string, handle: FileHandle, expectedSize: number | undefined) {
    this.path = path;
    this.#handle = handle;
    this.expectedSize = expectedSize;
  }

  /** Creates the file at `path`, which must not exist. */
  static async create(path: string, expectedSize: number | undefined): Promise<GrowingFile> {
    return new GrowingFile(path, await open(path, 'wx+', 0o644), expectedSize);
  }

  get written(): number {
    return this.#written;
  }

  /** Writes the chunk at the end and lets the readers see it. */
  async append(chunk: Uint8Array): Promise<void> {
    for (let done = 0; done < chunk.length; ) {
      const { bytesWritten } = await this.#handle.write(
        chunk,
        done,
        chunk.length - done,
        this.#written + done,
      );
      done += bytesWritten;
    }
    this.#written += chunk.length;
    this.#changed();
  }

  /** The contents are verified: readers may have the rest. */
  seal(): void {
    this.#state = 'sealed';
    this.#changed();
  }

  /** The contents are wrong or incomplete: every reader fails with `error`. */
  fail(error: unknown): void {
    this.#state = 'failed';
    this.#failure = error;
    this.#changed();
  }

  /** Brings the contents to the disk. */
  async sync(): Promise<void> {
    await this.#handle.sync();
  }

  /** A reader; undefined when the file is closed by now. */
  join(): NarBytes | undefined {
    if (this.#holders === 0) return undefined;
    this.#holders++;
    const size = () => (this.#state === 'sealed' ? this.#written : this.expectedSize);
    return {
      get size() {
        return size();
      },
      ready: (start) => this.#ready(start),
      read: (into, position) => this.#read(into, position),
      close: () => this.release(),
    };
  }

  /** Lets go of the file: the writer when it is done, and each reader. */
  release(): void {
    this.#holders--;
    if (this.#holders === 0) this.#handle.close().catch(() => {});
  }

  async #read(into: Uint8Array, position: number): Promise<number> {
    if (!(await this.#ready(position))) throw this.#failure;
    const length = Math.min(into.length, this.#readable() - position);
    if (length <= 0) return 0;
    const { bytesRead } = await this.#handle.read(into, 0, length, position);
    return bytesRead;
  }

  /** Whether byte `start` can be read, as soon as that is known. An end beyond the file reads as ready. */
  async #ready(start: number): Promise<boolean> {
    while (this.#state === 'growing' && this.#readable() <= start) await this.#change.promise;
    return this.#state !== 'failed';
  }

  #readable(): number {
    if (this.#state === 'sealed') return this.#written;
    if (this.expectedSize === undefined) return this.#written - HELD_BACK;
    return Math.min(this.#written, this.expectedSize - HELD_BACK);
  }

  #changed(): void {
    const { resolve } = this.#change;
    this.#change = Promise.withResolvers();
    resolve();
  }
}
