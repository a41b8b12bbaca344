import { fstatSync, mkdirSync } from 'node:fs';
import { mkdir, open, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Logger } from 'pino';
import { BcacheError } from '../../nix/errors.ts';
import { CacheIndex } from './cache-index.ts';
import type { GrowingFile } from './growing-file.ts';
import type { NarBytes } from './nar-bytes.ts';
import { sweep } from './sweep.ts';

export interface LocalCacheOptions {
  /** Bytes that the kept NAR files may take together; default: no bound. */
  readonly maxBytes?: number | undefined;
}

/**
 * The narinfos and verified NAR files that this machine keeps, under one directory:
 * `index.sqlite`, `nar/<xx>/<nar hash>.nar<ext>`, and `tmp/` for what is still arriving.
 */
export class LocalCache {
  readonly index: CacheIndex;
  readonly #dir: string;
  readonly #maxBytes: number;
  readonly #logger: Logger;
  /** Tells this run's temporary files from those an earlier run left behind. */
  readonly #run = `${process.pid}-${Date.now()}`;
  #temporary = 0;

  private constructor(dir: string, index: CacheIndex, maxBytes: number, logger: Logger) {
    this.#dir = dir;
    this.index = index;
    this.#maxBytes = maxBytes;
    this.#logger = logger;
  }

  /** @throws BcacheError state_unusable where the directory cannot be made, state_in_use */
  static open(dir: string, options: LocalCacheOptions, logger: Logger): LocalCache {
    try {
      mkdirSync(join(dir, 'nar'), { recursive: true });
      mkdirSync(join(dir, 'tmp'), { recursive: true });
    } catch (error) {
      throw new BcacheError('state_unusable', `the local cache cannot be made in ${dir}`, {
        hint: 'The agent needs a state directory that it may write to.',
        cause: error,
      });
    }
    const index = CacheIndex.open(join(dir, 'index.sqlite'), logger);
    return new LocalCache(dir, index, options.maxBytes ?? Number.POSITIVE_INFINITY, logger);
  }

  /** The kept file; undefined, and forgotten, where it is missing or not as long as it was. */
  async openNar(name: string): Promise<NarBytes | undefined> {
    const size = this.index.narSize(name);
    if (size === undefined) return undefined;
    const handle = await open(this.#narPath(name)).catch(() => undefined);
    // What was just opened is known to the kernel: asking for its size waits for no disk.
    if (handle === undefined || fstatSync(handle.fd).size !== size) {
      await handle?.close();
      this.#logger.warn({ nar: name }, 'a kept NAR file is missing or damaged: it will be fetched again');
      this.index.forgetNar(name);
      return undefined;
    }
    this.index.touchNar(name);
    return {
      size,
      ready: async () => true,
      read: async (into, position) => (await handle.read(into, 0, into.length, position)).bytesRead,
      close: () => void handle.close().catch(() => {}),
    };
  }

  /** Where a file that is still arriving may be written. */
  temporaryPath(): string {
    return join(this.#dir, 'tmp', `${this.#run}-${this.#temporary++}`);
  }

  /**
   * Keeps a verified file under `name`. Once this returns, it and its row survive a crash; a crash before
   * leaves nothing that counts.
   */
  async keepNar(name: string, file: GrowingFile): Promise<void> {
    if (file.written > this.#maxBytes) {
      await rm(file.path, { force: true });
      return;
    }
    const path = this.#narPath(name);
    await file.sync();
    await mkdir(dirname(path), { recursive: true });
    await rename(file.path, path);
    await syncDirectory(dirname(path));
    if (!this.index.keepNar({ name, size: file.written })) await rm(path, { force: true });
    await this.#makeRoom();
  }

  /** Removes what earlier runs left behind and the index does not know, and the reverse. */
  async sweep(isArriving: (name: string) => boolean): Promise<void> {
    await sweep(this.#dir, this.#run, this.index, isArriving, this.#logger);
  }

  close(): void {
    this.index.close();
  }

  async #makeRoom(): Promise<void> {
    while (this.index.narBytes > this.#maxBytes) {
      const victims = this.index.leastUsed(64);
      if (victims.length === 0) return;
      for (const { name } of victims) {
        if (this.index.narBytes <= this.#maxBytes) return;
        this.index.forgetNar(name);
        await rm(this.#narPath(name), { force: true });
      }
    }
  }

  #narPath(name: string): string {
    return join(this.#dir, 'nar', name.slice(0, 2), name);
  }
}

async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
