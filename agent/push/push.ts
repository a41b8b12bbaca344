import { availableParallelism } from 'node:os';
import type { CacheName } from '../../api/cache-name.ts';
import type { OriginClient } from '../../api/client.ts';
import { LIMITS } from '../../api/limits.ts';
import type { LocalPathInfo, LocalStore } from '../../nix/store/local-store.ts';
import { hashPart, type StorePath, type StorePathHash } from '../../nix/store-path.ts';
import type { PushEvent, PushFailure } from './events.ts';
import { DEFAULT_LEVEL } from './level.ts';
import { DEFAULT_RETRY, type RetryPolicy, retry, unlessAborted } from './retry.ts';
import { PushRun } from './run.ts';

export interface PushOptions {
  readonly origin: OriginClient;
  readonly cache: CacheName;
  readonly store: LocalStore;
  /** What to push, with all it refers to. Protect them from garbage collection until the push is over. */
  readonly roots: readonly StorePath[];
  /** Paths dumped at once; twice the cores, up to 16, if not given. */
  readonly jobs?: number | undefined;
  /** Of zstd, 1 to 19; {@link DEFAULT_LEVEL} if not given. */
  readonly level?: number | undefined;
  /** Ends the push: it rejects with the signal's reason as soon as its threads have ended. */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((event: PushEvent) => void) | undefined;
  readonly retry?: RetryPolicy | undefined;
}

export interface PushSummary {
  /** Paths of the closure, and of these: pushed now, in the cache already (by now), failed. */
  readonly closure: number;
  readonly pushed: number;
  readonly present: number;
  readonly failed: readonly PushFailure[];
  /** Bytes of the NARs pushed. */
  readonly narBytes: number;
  /** Bytes of compressed NARs sent, also for paths that failed in the end. */
  readonly sentBytes: number;
  /** Paths of which the cache has and keeps a NAR of other contents: its NarHash, `sha256:<base32>`. */
  readonly mismatched: readonly { readonly path: StorePath; readonly kept: string }[];
}

const MAX_DEFAULT_JOBS = 16;

/** Tries of the first request, so that a wrong address is told soon. */
const FIRST_TRIES = 3;

/**
 * Pushes the closure of `roots` to a cache: asks once which paths it lacks, dumps those, and has them
 * published, references before what refers to them. A path that fails takes along only what needs it.
 *
 * @throws StoreError for roots that are not valid; ApiError where the cache cannot be pushed to at all: no
 * access (401, 403), no such cache (404), disk full (507), origin out of reach (0, 429, 503). What was published
 * before stays.
 */
export async function push(options: PushOptions): Promise<PushSummary> {
  const { origin, cache, store, roots, onProgress = () => {} } = options;
  const policy = options.retry ?? DEFAULT_RETRY;
  const jobs = options.jobs ?? Math.min(2 * availableParallelism(), MAX_DEFAULT_JOBS);
  const stop = new AbortController();
  const abort = () => stop.abort(options.signal?.reason);
  if (options.signal?.aborted) abort();
  options.signal?.addEventListener('abort', abort);
  try {
    const retrying = {
      policy,
      signal: stop.signal,
      onRetry: ({ message }: Error, delay: number) => onProgress({ type: 'retry', message, delay }),
    };
    const closure = await unlessAborted(store.queryClosure(roots), stop.signal);
    const first = { ...retrying, policy: { ...policy, tries: Math.min(policy.tries, FIRST_TRIES) } };
    const lacking = await askMissing(closure, (hashes) => retry(() => origin.missing(cache, hashes), first));
    const missing = closure.filter(({ path }) => lacking.has(hashPart(path)));
    const narBytes = missing.reduce((sum, { narSize }) => sum + narSize, 0);
    onProgress({ type: 'plan', closure: closure.length, missing: missing.length, narBytes });
    const level = options.level ?? DEFAULT_LEVEL;
    const run = new PushRun({ origin, cache, missing, jobs, level, retrying, stop, onProgress });
    const { present, ...result } = await run.finished();
    return { closure: closure.length, ...result, present: present + closure.length - missing.length };
  } finally {
    options.signal?.removeEventListener('abort', abort);
  }
}

async function askMissing(
  closure: readonly LocalPathInfo[],
  ask: (hashes: readonly StorePathHash[]) => Promise<StorePathHash[]>,
): Promise<Set<StorePathHash>> {
  const missing = new Set<StorePathHash>();
  for (let at = 0; at < closure.length; at += LIMITS.missingHashes) {
    const hashes = closure.slice(at, at + LIMITS.missingHashes).map(({ path }) => hashPart(path));
    for (const hash of await ask(hashes)) missing.add(hash);
  }
  return missing;
}
