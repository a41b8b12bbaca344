import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { StoreError } from '../../nix/errors.ts';
import { parseSha256Base32, type Sha256 } from '../../nix/hash.ts';
import type { DumpWorkerData, FromDumpWorker, ToDumpWorker } from './dump-messages.ts';

/** One zstd frame of a NAR that is dumped. */
export interface NarFrame {
  readonly bytes: Buffer;
  /** Bytes of the NAR inside. */
  readonly narBytes: number;
}

export interface NarDigest {
  readonly narHash: Sha256;
  readonly narSize: number;
}

/** Threads that dump, hash and compress store paths. */
export class DumpWorkers {
  readonly #threads: DumpThread[];
  #lastId = 0;

  /** @param level of zstd, 1 to 19 */
  constructor(threads: number, level: number) {
    this.#threads = Array.from({ length: threads }, () => new DumpThread({ level }));
  }

  /**
   * Dumps what is at `root`. The same contents and level give the same frames.
   */
  dump(root: string): Dump {
    const thread = this.#threads.reduce((a, b) => (b.active < a.active ? b : a));
    return new Dump(thread, ++this.#lastId, root);
  }

  /** Ends all threads; dumps under way end in an error. */
  async close(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.close()));
  }
}

/**
 * The compressed NAR of one path, frame by frame, to be read once. Only a few frames are made ahead of the
 * reader. Leaving the loop early ends the dump.
 */
export class Dump {
  readonly #thread: DumpThread;
  readonly #id: number;
  readonly #frames: NarFrame[] = [];
  #end: NarDigest | Error | undefined;
  #wake: () => void = () => {};

  constructor(thread: DumpThread, id: number, root: string) {
    this.#thread = thread;
    this.#id = id;
    thread.begin(id, (message) => {
      if (message instanceof Error) this.#end = message;
      else if (message.type === 'frame') {
        const { buffer, byteOffset, byteLength } = message.bytes;
        this.#frames.push({
          bytes: Buffer.from(buffer, byteOffset, byteLength),
          narBytes: message.narBytes,
        });
      } else if (message.type === 'end') {
        this.#end = { narHash: parseSha256Base32(message.narHash), narSize: message.narSize };
      } else {
        const hint = message.hint === undefined ? {} : { hint: message.hint };
        this.#end = new StoreError(message.code, message.message, hint);
      }
      this.#wake();
    });
    thread.post({ type: 'dump', id, root });
  }

  /** @throws StoreError of nix/nar/write.ts, where the path cannot be dumped. */
  async *frames(): AsyncGenerator<NarFrame, void, undefined> {
    try {
      for (;;) {
        const frame = this.#frames.shift();
        if (frame !== undefined) {
          yield frame;
          this.#thread.post({ type: 'ack', id: this.#id });
        } else if (this.#end instanceof Error) throw this.#end;
        else if (this.#end !== undefined) return;
        else await new Promise<void>((resolve) => (this.#wake = resolve));
      }
    } finally {
      if (this.#end === undefined) this.#thread.post({ type: 'cancel', id: this.#id });
      this.#thread.forget(this.#id);
    }
  }

  /** What was dumped, once all frames were read. */
  get digest(): NarDigest {
    if (this.#end === undefined || this.#end instanceof Error) throw new Error('the dump is not over');
    return this.#end;
  }
}

type Listener = (message: FromDumpWorker | Error) => void;

class DumpThread {
  readonly #worker: Worker;
  readonly #exit: Promise<void>;
  readonly #listeners = new Map<number, Listener>();
  #failure: Error | undefined;

  constructor(workerData: DumpWorkerData) {
    // Of the same kind as this file: .ts in the sources, .js where they were compiled.
    this.#worker = new Worker(new URL(`dump-worker${extname(import.meta.url)}`, import.meta.url), {
      workerData,
      // What it makes lies outside the heap; a larger one would only grow.
      resourceLimits: { maxYoungGenerationSizeMb: 2 },
    });
    this.#exit = new Promise((resolve) => this.#worker.once('exit', () => resolve()));
    this.#worker.on('message', (message: FromDumpWorker) => this.#listeners.get(message.id)?.(message));
    this.#worker.on('error', (error: Error) => this.#fail(error));
    this.#worker.on('exit', () => this.#fail(new Error('the thread that dumps store paths has ended')));
  }

  get active(): number {
    return this.#listeners.size;
  }

  begin(id: number, listener: Listener): void {
    this.#listeners.set(id, listener);
    if (this.#failure !== undefined) listener(this.#failure);
  }

  forget(id: number): void {
    this.#listeners.delete(id);
  }

  post(message: ToDumpWorker): void {
    this.#worker.postMessage(message);
  }

  async close(): Promise<void> {
    this.post({ type: 'stop' });
    await this.#exit;
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    for (const listener of this.#listeners.values()) listener(this.#failure);
  }
}
