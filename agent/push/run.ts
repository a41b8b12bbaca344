import { availableParallelism } from 'node:os';
import type { CacheName } from '../../api/cache-name.ts';
import type { OriginClient } from '../../api/client.ts';
import { ApiError } from '../../api/problem.ts';
import { BcacheError } from '../../nix/errors.ts';
import type { LocalPathInfo } from '../../nix/store/local-store.ts';
import { fullPath, hashPart, type StorePath } from '../../nix/store-path.ts';
import { commitBatch, endsPush, type Outcome } from './commits.ts';
import { DumpWorkers } from './dump-workers.ts';
import type { PushEvent, PushFailure } from './events.ts';
import { PushGraph, type PushPath, type ReadyNar } from './graph.ts';
import { PartUploads, UploadLost } from './part-upload.ts';
import { type PreparedNar, prepareNar } from './prepare-nar.ts';
import { type Retrying, retry } from './retry.ts';

/** Bounds of one commit, far below what the origin takes. */
const BATCH = { paths: 500, bytes: 8 << 20 };
const COMMITS_IN_FLIGHT = 2;
/** Nothing more is dumped while this much waits to be published: two commits under way and one to come. */
const MAX_HELD_BYTES = 3 * BATCH.bytes;
/** Milliseconds a path waits for others to share its commit. */
const BATCH_DELAY = 250;
/** How often one NAR is sent when its upload gets lost. */
const MAX_SENDS = 3;
/** Compression runs on the threads of libuv's pool, so that more threads would only wait for those. */
const MAX_THREADS = 8;

export interface RunOptions {
  readonly origin: OriginClient;
  readonly cache: CacheName;
  /** What to push, references before referrers. */
  readonly missing: readonly LocalPathInfo[];
  readonly jobs: number;
  readonly level: number;
  readonly retrying: Retrying;
  /** Of which `retrying` has the signal; aborted by the run itself when it ends early. */
  readonly stop: AbortController;
  readonly onProgress: (event: PushEvent) => void;
}

export interface RunResult {
  pushed: number;
  present: number;
  failed: PushFailure[];
  narBytes: number;
  sentBytes: number;
  mismatched: { path: StorePath; kept: string }[];
}

/**
 * One push, from what is missing until every path is settled. Whatever happens calls {@link PushRun.#pump}, which starts
 * all that can be started.
 */
export class PushRun {
  readonly #options: RunOptions;
  readonly #graph: PushGraph;
  readonly #workers: DumpWorkers;
  readonly #uploads: PartUploads;
  readonly #finished = Promise.withResolvers<void>();
  readonly #result: RunResult = {
    pushed: 0,
    present: 0,
    failed: [],
    narBytes: 0,
    sentBytes: 0,
    mismatched: [],
  };
  #dumping = 0;
  #committing = 0;
  #batchTimer: NodeJS.Timeout | undefined;
  #batchDue = false;

  constructor(options: RunOptions) {
    this.#options = options;
    this.#graph = new PushGraph(options.missing);
    const { origin, cache, jobs, level, retrying } = options;
    const threads = Math.min(jobs, availableParallelism(), MAX_THREADS, options.missing.length);
    this.#workers = new DumpWorkers(threads, level);
    this.#uploads = new PartUploads({ origin, cache, retrying, onSent: (bytes) => this.#sent(bytes) });
  }

  /** @throws what ended the push before every path was settled */
  async finished(): Promise<RunResult> {
    const { signal } = this.#options.stop;
    const aborted = () => this.#finished.reject(signal.reason);
    signal.addEventListener('abort', aborted);
    try {
      if (signal.aborted) aborted();
      else this.#pump();
      await this.#finished.promise;
      return this.#result;
    } finally {
      signal.removeEventListener('abort', aborted);
      clearTimeout(this.#batchTimer);
      await this.#workers.close();
    }
  }

  #pump(): void {
    if (this.#options.stop.signal.aborted) return;
    while (this.#dumping < this.#options.jobs && this.#graph.heldBytes < MAX_HELD_BYTES) {
      const path = this.#graph.takeNext();
      if (path === undefined) break;
      this.#go(this.#prepare(path));
    }
    while (this.#committing < COMMITS_IN_FLIGHT && this.#isBatchDue()) {
      const batch = this.#graph.takeBatch(BATCH);
      if (batch.length === 0) break;
      this.#batchDue = false;
      this.#committing++;
      this.#go(this.#commit(batch));
    }
    this.#setBatchTimer();
    if (this.#graph.settled) this.#finished.resolve();
  }

  /** A step that is under way; an error of it ends the push. */
  #go(step: Promise<void>): void {
    step.then(
      () => this.#pump(),
      (error) => this.#options.stop.abort(error),
    );
  }

  #isBatchDue(): boolean {
    const { readyBytes, readyCount } = this.#graph;
    if (readyCount === 0) return false;
    return this.#dumping === 0 || this.#batchDue || readyCount >= BATCH.paths || readyBytes >= BATCH.bytes;
  }

  #setBatchTimer(): void {
    if (this.#graph.readyCount === 0 || this.#batchDue || this.#batchTimer !== undefined) return;
    this.#batchTimer = setTimeout(() => {
      this.#batchTimer = undefined;
      this.#batchDue = true;
      this.#pump();
    }, BATCH_DELAY);
  }

  /** Dumps a path, and sends its NAR if it is large, until the path can be committed. */
  async #prepare(path: PushPath): Promise<void> {
    const { retrying } = this.#options;
    for (let sends = 1; path.state === 'dumping'; sends++) {
      try {
        const { nar, upload } = await this.#dump(path);
        if (upload !== undefined) {
          this.#pump();
          await upload.arrived();
        }
        if (path.state === 'dumping') this.#graph.ready(path, nar);
      } catch (error) {
        if (path.state !== 'dumping') return;
        if (!(error instanceof UploadLost) || sends === MAX_SENDS) {
          this.#fail(path, error);
        } else if (await retry(() => this.#isPresent(path), retrying)) {
          this.#settle(path, 'present', path.info.narSize, 0);
        }
      }
    }
  }

  /** Resolves when the dump is over, be it that the last parts of an upload are on their way still. */
  async #dump(path: PushPath): Promise<PreparedNar> {
    this.#dumping++;
    const { onProgress } = this.#options;
    const dump = this.#workers.dump(fullPath(path.info.storeDir, path.path));
    try {
      return await prepareNar(path, dump, this.#uploads, (narBytes) =>
        onProgress({ type: 'dumped', narBytes }),
      );
    } finally {
      this.#dumping--;
    }
  }

  async #isPresent(path: PushPath): Promise<boolean> {
    const { origin, cache } = this.#options;
    return (await origin.missing(cache, [hashPart(path.path)])).length === 0;
  }

  async #commit(batch: readonly PushPath[]): Promise<void> {
    try {
      await commitBatch(this.#options, batch, (path, outcome) => this.#note(path, outcome));
    } finally {
      this.#committing--;
    }
  }

  #note(path: PushPath, outcome: Outcome): void {
    const { inline, fileSize, narSize } = path.nar as ReadyNar;
    if (inline !== undefined) this.#sent(fileSize);
    if (outcome instanceof ApiError) {
      this.#fail(path, outcome);
    } else if (outcome.result === 'refused') {
      const { code = 'refused', message = 'the origin refused it' } = outcome;
      this.#fail(path, new BcacheError(code, message));
    } else {
      const kept = outcome.keptNarHash;
      if (kept !== undefined) this.#result.mismatched.push({ path: path.path, kept });
      this.#settle(path, outcome.result === 'published' ? 'pushed' : 'present', narSize, fileSize);
    }
  }

  #settle(path: PushPath, result: 'pushed' | 'present', narSize: number, fileSize: number): void {
    this.#graph.published(path);
    this.#result[result]++;
    if (result === 'pushed') this.#result.narBytes += narSize;
    this.#options.onProgress({ type: result, path: path.path, narSize, fileSize });
  }

  /** @throws `error` where it does not concern this path alone */
  #fail(path: PushPath, error: unknown): void {
    if (!(error instanceof BcacheError) || (error instanceof ApiError && endsPush(error))) throw error;
    for (const failure of this.#graph.fail(path, error)) {
      this.#result.failed.push(failure);
      this.#options.onProgress({ type: 'failed', ...failure });
    }
  }

  #sent(bytes: number): void {
    this.#result.sentBytes += bytes;
    this.#options.onProgress({ type: 'sent', bytes });
  }
}
