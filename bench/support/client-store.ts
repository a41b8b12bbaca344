import { mkdir, mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { BcacheError } from '../../nix/errors.ts';
import type { PrivateNix } from './nix.ts';
import type { Processes } from './processes.ts';
import { removeTree } from './remove-tree.ts';

/**
 * Substitutes paths into an empty store with nothing remembered of any cache, then deletes that store.
 * Its files lie elsewhere than `nix`'s, yet its paths have the same names. Signatures are checked nowhere:
 * what `nix copy` wrote has none, and Nix checks each NAR's hash all the same.
 *
 * @param url the only substituter.
 * @returns seconds from the start of `nix-store -r` to its end.
 */
export async function fetchIntoEmpty(
  processes: Processes,
  nix: PrivateNix,
  paths: readonly string[],
  url: string,
  temporary: string,
): Promise<number> {
  const dir = await mkdtemp(join(temporary, 'client-'));
  try {
    for (const name of ['store', 'state', 'log', 'home']) await mkdir(join(dir, name));
    const env = {
      ...nix.env,
      NIX_REMOTE: `local?real=${dir}/store&state=${dir}/state&log=${dir}/log`,
      NIX_STATE_DIR: join(dir, 'state'),
      NIX_LOG_DIR: join(dir, 'log'),
      NIX_DAEMON_SOCKET_PATH: join(dir, 'socket'),
      HOME: join(dir, 'home'),
      XDG_CACHE_HOME: join(dir, 'home/.cache'),
    };
    const settings = { substituters: url, substitute: 'true', 'require-sigs': 'false', 'max-jobs': 'auto' };
    const options = Object.entries(settings).flatMap(([name, value]) => ['--option', name, value]);
    // Nix would wait for what was written before, which has nothing to do with it.
    await processes.measure('sync', [], process.env);
    const { seconds } = await processes.measure('nix-store', ['-r', ...paths, ...options], env);
    const check = ['--check-validity', ...paths];
    await processes.measure('nix-store', check, env).catch((cause) => {
      throw new BcacheError('fetch_failed', `${url} did not give all paths`, { cause });
    });
    return seconds;
  } finally {
    await removeTree(dir);
  }
}
