import { push } from '../agent/push/push.ts';
import { parseCacheName } from '../api/cache-name.ts';
import { OriginClient } from '../api/client.ts';
import { BcacheError } from '../nix/errors.ts';
import type { TempRoots } from '../nix/store/local-store.ts';
import { type OpenedStore, openLocalStore } from '../nix/store/open.ts';
import { type Output, PushProgress } from './progress.ts';
import { holdPaths, readWords, resolvePaths } from './push-paths.ts';

export interface RunPushOptions {
  readonly cache: string;
  /** As they were typed; with none, they come from `input`. */
  readonly paths: readonly string[];
  readonly jobs: number | undefined;
  readonly level: number | undefined;
  /** The origin, and the token to use there. */
  readonly client: { readonly url: string; readonly token: string | undefined };
  /** Says where the Nix store is. */
  readonly env: NodeJS.ProcessEnv;
  readonly input: AsyncIterable<Buffer | string> & { readonly isTTY?: boolean };
  readonly out: Output;
  readonly err: Output;
  readonly signal?: AbortSignal;
}

/**
 * Pushes paths with all they refer to, and tells how it goes.
 *
 * @returns whether everything is in the cache now
 * @throws BcacheError where there is something wrong before anything was sent, or with the cache as a whole
 */
export async function runPush(options: RunPushOptions): Promise<boolean> {
  const { client, out, err } = options;
  const cache = parseCacheName(options.cache);
  checkRange('jobs', options.jobs, 1, 256);
  checkRange('level', options.level, 1, 19);
  const names = await namesOf(options);
  if (names.length === 0) {
    out.write('nothing to push: standard input names no path\n');
    return true;
  }
  const opened = await openLocalStore(options.env);
  const { store } = opened;
  let roots: TempRoots | undefined;
  try {
    const paths = resolvePaths(names, store);
    roots = await tempRoots(opened, err);
    await holdPaths(paths, store, roots);
    const origin = new OriginClient({ ...client, userAgent: 'bcache-push' });
    const progress = new PushProgress(store.storeDir, out, err);
    try {
      const { jobs, level, signal } = options;
      const onProgress = progress.on.bind(progress);
      const summary = await push({ origin, cache, store, roots: paths, jobs, level, signal, onProgress });
      progress.summarize(summary, cache);
      return summary.failed.length === 0;
    } finally {
      progress.stop();
      await origin.close();
    }
  } finally {
    await roots?.close();
    await store.close();
  }
}

async function namesOf({ paths, input }: RunPushOptions): Promise<readonly string[]> {
  if (paths.length > 0) return paths;
  if (input.isTTY) {
    throw new BcacheError('no_paths', 'there is nothing to push', {
      hint: 'Name store paths, or links to them such as ./result, or send a list of them to standard input.',
    });
  }
  return readWords(input);
}

async function tempRoots(opened: OpenedStore, err: Output): Promise<TempRoots | undefined> {
  try {
    return await opened.tempRoots();
  } catch (error) {
    if (!(error instanceof BcacheError)) throw error;
    err.write(`bcache: warning: ${error.message}\n`);
    return undefined;
  }
}

function checkRange(name: string, value: number | undefined, least: number, most: number): void {
  if (value === undefined || (Number.isInteger(value) && value >= least && value <= most)) return;
  throw new BcacheError('bad_option', `--${name} must be a whole number from ${least} to ${most}`);
}
