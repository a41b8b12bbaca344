import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { CacheIndex } from './cache-index.ts';

/**
 * Makes the files and the index agree: removes temporary files of runs other than `run`, NAR files that no
 * row names, and rows whose file is gone. Only directories are read, no file is touched, so that it stays
 * cheap for 100,000 entries; the agent serves meanwhile.
 *
 * @param dir the local cache's directory
 * @param isArriving whether a NAR of this name is being written just now, so that its row may still come
 */
export async function sweep(
  dir: string,
  run: string,
  index: CacheIndex,
  isArriving: (name: string) => boolean,
  logger: Logger,
): Promise<void> {
  let removed = 0;
  for (const name of await readdir(join(dir, 'tmp'))) {
    if (name.startsWith(`${run}-`)) continue;
    await rm(join(dir, 'tmp', name), { recursive: true, force: true });
    removed++;
  }

  // Rows first, then files: a NAR kept in between has a file that `rows` does not know, and is asked about.
  const rows = new Set(index.narNames());
  for (const shard of await readdir(join(dir, 'nar'))) {
    for (const name of await readdir(join(dir, 'nar', shard)).catch(() => [])) {
      if (rows.delete(name) || isArriving(name) || index.narSize(name) !== undefined) continue;
      await rm(join(dir, 'nar', shard, name), { recursive: true, force: true });
      removed++;
    }
  }
  let forgotten = 0;
  for (const name of rows) {
    // It may have been fetched again since its directory was read; asking for it would find that out.
    if (isArriving(name)) continue;
    index.forgetNar(name);
    forgotten++;
  }
  if (removed > 0 || forgotten > 0) {
    logger.info({ removed, forgotten }, 'the local cache was cleaned of what an earlier run left behind');
  }
}
