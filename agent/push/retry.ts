import { setTimeout as wait } from 'node:timers/promises';
import { ApiError } from '../../api/problem.ts';

export interface RetryPolicy {
  /** How often a call is made in all. */
  readonly tries: number;
  /** Milliseconds before the second try; they double from there on. */
  readonly firstDelay: number;
  /** Milliseconds at most, unless the origin asks for more. */
  readonly maxDelay: number;
}

/** Outlasts an origin that is restarted: about half a minute. */
export const DEFAULT_RETRY: RetryPolicy = { tries: 8, firstDelay: 500, maxDelay: 10_000 };

/** Seconds; an origin that asks for more patience than this is taken to be down. */
const MAX_RETRY_AFTER = 120;

const TRANSIENT = new Set([0, 429, 502, 503, 504]);

/** Whether the same call may succeed later. */
export function isTransient(error: unknown): error is ApiError {
  return error instanceof ApiError && TRANSIENT.has(error.status);
}

export interface Retrying {
  readonly policy: RetryPolicy;
  /** Ends the waiting, also for an answer. */
  readonly signal: AbortSignal;
  /** Told before each wait of `delay` milliseconds. */
  readonly onRetry: (error: ApiError, delay: number) => void;
}

/**
 * Makes a call that may be repeated until it succeeds.
 *
 * @throws the last error, or at once one that trying again will not mend; the signal's reason.
 */
export async function retry<T>(call: () => Promise<T>, { policy, signal, onRetry }: Retrying): Promise<T> {
  for (let tries = 1; ; tries++) {
    signal.throwIfAborted();
    try {
      return await unlessAborted(call(), signal);
    } catch (error) {
      if (!isTransient(error) || tries >= policy.tries) throw error;
      const delay = delayBefore(tries, error, policy);
      if (delay === undefined) throw error;
      onRetry(error, delay);
      await unlessAborted(wait(delay, undefined, { signal }), signal);
    }
  }
}

/** As `promise`, but rejects with the signal's reason as soon as that is aborted. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort);
    if (signal.aborted) abort();
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

function delayBefore(tries: number, error: ApiError, policy: RetryPolicy): number | undefined {
  const asked = error.retryAfter ?? 0;
  if (asked > MAX_RETRY_AFTER) return undefined;
  const backoff = Math.min(policy.firstDelay * 2 ** (tries - 1), policy.maxDelay);
  // Half of it by chance, so that clients that failed together do not come back together.
  return Math.max(asked * 1000, backoff * (0.5 + Math.random() / 2));
}
