import { lstatSync, readlinkSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { FormatError, StoreError } from '../errors.ts';
import { parseStorePath, type StoreDir, type StorePath } from '../store-path.ts';

/** As many links in a row as Linux follows. */
const MAX_LINKS = 40;

/**
 * The store path that holds what `argument` names: a path in the store, or one that leads there by
 * symlinks (`./result`, `./result/bin/hello`). Whether the path is valid is not asked.
 *
 * @throws StoreError `not_in_store`, `bad_store_path`, `no_such_file`
 */
export function resolveStorePath(argument: string, storeDir: StoreDir): StorePath {
  let path = resolve(argument);
  for (let links = 0; links <= MAX_LINKS; links++) {
    // The store comes first: links inside it are not followed, as what they lie in is what is meant.
    if (path.startsWith(`${storeDir}/`)) return nameIn(path, storeDir, argument);
    const link = firstLink(path, argument);
    if (link === undefined) break;
    path = join(resolve(dirname(link), readlinkSync(link)), path.slice(link.length));
  }
  throw new StoreError('not_in_store', `'${argument}' is not in the Nix store ${storeDir}`, {
    hint: `Give a path in ${storeDir}, or a link to one such as ./result.`,
  });
}

/** The first of `path`'s components that is a symlink, with all before it. */
function firstLink(path: string, argument: string): string | undefined {
  for (let end = path.indexOf('/', 1); ; end = path.indexOf('/', end + 1)) {
    const prefix = end === -1 ? path : path.slice(0, end);
    try {
      if (lstatSync(prefix).isSymbolicLink()) return prefix;
    } catch (error) {
      throw new StoreError('no_such_file', `'${argument}' cannot be followed: ${(error as Error).message}`, {
        hint: 'Check the path; a result link may lead to what was garbage-collected.',
        cause: error,
      });
    }
    if (end === -1) return undefined;
  }
}

function nameIn(path: string, storeDir: StoreDir, argument: string): StorePath {
  const [name = ''] = path.slice(storeDir.length + 1).split('/');
  try {
    return parseStorePath(name);
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    throw new StoreError('bad_store_path', `'${argument}' is no store path: ${error.message}`, {
      hint: `Store paths look like ${storeDir}/<32 letters and digits>-<name>.`,
      cause: error,
    });
  }
}
