import { statSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { BcacheError, StoreError } from '../errors.ts';

/** Milliseconds to wait where Nix holds a lock that keeps readers out (rare, as its journal is a WAL). */
const BUSY_TIMEOUT = 5_000;
const ATTEMPTS = 5;

/**
 * Runs `read` on Nix's database, in one transaction, without ever writing to its directory.
 *
 * The file is opened anew each time, since Nix may replace it and removes its journal when it is done
 * with it. Without a journal nothing can be opened read-only in the usual way, so the file is read as it
 * lies, and once more if Nix wrote to it meanwhile.
 *
 * @throws StoreError `store_unreadable`, and what `read` throws
 */
export function readDatabase<T>(file: string, read: (database: DatabaseSync) => T): T {
  for (let attempt = 1; ; attempt++) {
    const before = stateOf(file);
    try {
      const result = readOnce(file, before.journal ? 'mode=ro' : 'immutable=1', read);
      if (before.journal || unchanged(before, stateOf(file))) return result;
    } catch (error) {
      // A failure may come of the journal's appearing or going, or of pages half written; any other stays.
      if (unchanged(before, stateOf(file)) || attempt === ATTEMPTS) {
        throw error instanceof BcacheError ? error : unreadable(file, error);
      }
      continue;
    }
    if (attempt === ATTEMPTS) throw unreadable(file, 'Nix keeps writing to it');
  }
}

function readOnce<T>(file: string, mode: string, read: (database: DatabaseSync) => T): T {
  const url = `${pathToFileURL(file).href}?${mode}`;
  const database = new DatabaseSync(url, { readOnly: true, timeout: BUSY_TIMEOUT });
  try {
    database.exec('BEGIN');
    return read(database);
  } finally {
    database.close();
  }
}

interface FileState {
  readonly journal: boolean;
  readonly version: string;
}

function stateOf(file: string): FileState {
  const journal = statSync(`${file}-wal`, { throwIfNoEntry: false }) !== undefined;
  const stat = statSync(file, { bigint: true, throwIfNoEntry: false });
  return { journal, version: stat === undefined ? '' : `${stat.ino} ${stat.size} ${stat.mtimeNs}` };
}

function unchanged(before: FileState, after: FileState): boolean {
  return before.journal === after.journal && before.version === after.version;
}

function unreadable(file: string, cause: unknown): StoreError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new StoreError('store_unreadable', `Nix's database ${file} cannot be read: ${why}`, {
    hint: 'Run as a user who may read it, or let the Nix daemon run: it is asked instead.',
    cause,
  });
}
