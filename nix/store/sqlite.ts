import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { DatabaseSync, SQLOutputValue } from 'node:sqlite';
import { StoreError } from '../errors.ts';
import { sortReferences } from '../narinfo.ts';
import { fullPath, type StoreDir, type StorePath } from '../store-path.ts';
import { closureOrder, invalidPath } from './closure-order.ts';
import { readDatabase } from './database.ts';
import { parseDeriver, parseIn, parseNarHash, parseSignatures, reading } from './fields.ts';
import type { LocalPathInfo, LocalStore } from './local-store.ts';

/** The one layout of the tables that has been in use since Nix 2.0. */
const SCHEMA = '10';

/** A path that became valid, and the number under which it did: larger than that of any path before. */
export interface Registration {
  readonly id: number;
  readonly path: StorePath;
  /** Whether it was built on this machine. */
  readonly ultimate: boolean;
}

/** The local store as Nix's database has it; nothing is ever written. */
export class SqliteStore implements LocalStore {
  readonly storeDir: StoreDir;
  readonly #file: string;

  /**
   * @param stateDir where Nix keeps its state: `/nix/var/nix` almost everywhere
   * @throws StoreError `no_database`, `store_unreadable`, `unsupported_schema`
   */
  constructor(storeDir: StoreDir, stateDir: string) {
    this.storeDir = storeDir;
    this.#file = join(stateDir, 'db', 'db.sqlite');
    checkSchema(join(stateDir, 'db', 'schema'));
    this.#read((database) => database.prepare('SELECT 1 FROM ValidPaths LIMIT 1').get());
  }

  async queryPathInfo(path: StorePath): Promise<LocalPathInfo | undefined> {
    return this.#read((database) => {
      const row = rows(database, SELECT_INFO, fullPath(this.storeDir, path))[0];
      if (row === undefined) return undefined;
      const references = rows(database, SELECT_REFERENCES, row[0] as number);
      return this.#parse(
        row,
        references.map(([text]) => parseIn(this.storeDir, text as string)),
      );
    });
  }

  async queryClosure(roots: readonly StorePath[]): Promise<LocalPathInfo[]> {
    const infos = this.#read((database) => {
      const wanted = JSON.stringify(roots.map((path) => fullPath(this.storeDir, path)));
      const found = rows(database, SELECT_CLOSURE, wanted);
      // Tens of thousands of references: each path is parsed once, and found by its number from then on.
      const paths = new Map(found.map(([id, text]) => [String(id), parseIn(this.storeDir, text as string)]));
      return new Map(
        found.map((row) => {
          const ids = ((row.at(-1) as string | null) ?? '').split(',');
          const references = ids.flatMap((id) => paths.get(id) ?? []);
          const info = this.#parse(row, references);
          return [info.path, info];
        }),
      );
    });
    const missing = roots.find((root) => !infos.has(root));
    if (missing !== undefined) throw invalidPath(missing);
    return closureOrder(infos, roots);
  }

  /** The paths that became valid after the one numbered `id`, oldest first, at most `limit`. */
  pathsRegisteredAfter(id: number, limit: number): Registration[] {
    const query = 'SELECT id, path, ultimate FROM ValidPaths WHERE id > ? ORDER BY id LIMIT ?';
    return this.#read((database) =>
      rows(database, query, id, limit).map(([number, text, ultimate]) => ({
        id: number as number,
        path: parseIn(this.storeDir, text as string),
        ultimate: ultimate === 1,
      })),
    );
  }

  /** The number of the path that became valid last; 0 for a store that never had one. */
  lastRegistration(): number {
    // The table's counter, not its maximum: the newest path may have been collected since.
    const query = `SELECT seq FROM sqlite_sequence WHERE name = 'ValidPaths'`;
    return this.#read((database) => (rows(database, query)[0]?.[0] as number | undefined) ?? 0);
  }

  async close(): Promise<void> {}

  #read<T>(read: (database: DatabaseSync) => T): T {
    return reading(`Nix's database ${this.#file}`, () => readDatabase(this.#file, read));
  }

  #parse(row: SQLOutputValue[], references: readonly StorePath[]): LocalPathInfo {
    const [, path, hash, time, deriver, size, ultimate, signatures, ca] = row;
    return {
      storeDir: this.storeDir,
      path: parseIn(this.storeDir, path as string),
      narHash: parseNarHash(hash as string),
      narSize: (size as number | null) ?? 0,
      references: sortReferences(references),
      deriver: parseDeriver(this.storeDir, deriver as string | null),
      signatures: parseSignatures((signatures as string | null)?.split(' ') ?? []),
      ca: (ca as string | null) || undefined,
      registrationTime: time as number,
      ultimate: ultimate === 1,
    };
  }
}

const COLUMNS = 'id, path, hash, registrationTime, deriver, narSize, ultimate, sigs, ca';
const SELECT_INFO = `SELECT ${COLUMNS} FROM ValidPaths WHERE path = ?`;
const SELECT_REFERENCES = 'SELECT path FROM Refs JOIN ValidPaths ON id = reference WHERE referrer = ?';
/** Takes full paths as a JSON list; the last column lists the numbers of the references. */
const SELECT_CLOSURE = `WITH RECURSIVE closure(id) AS (
  SELECT id FROM ValidPaths WHERE path IN (SELECT value FROM json_each(?))
  UNION SELECT reference FROM closure JOIN Refs ON referrer = closure.id
)
SELECT ${COLUMNS}, (SELECT group_concat(reference) FROM Refs WHERE referrer = id)
FROM closure JOIN ValidPaths USING (id)`;

function rows(database: DatabaseSync, query: string, ...values: (string | number)[]): SQLOutputValue[][] {
  const statement = database.prepare(query);
  statement.setReturnArrays(true);
  return statement.all(...values) as unknown as SQLOutputValue[][];
}

function checkSchema(file: string): void {
  let schema: string;
  try {
    schema = readFileSync(file, 'utf8').trim();
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    throw new StoreError(
      missing ? 'no_database' : 'store_unreadable',
      missing
        ? `there is no Nix database: ${file} does not exist`
        : `Nix's database cannot be read: ${(error as Error).message}`,
      { hint: 'Check that Nix is installed, and NIX_STATE_DIR where it is set.', cause: error },
    );
  }
  if (schema !== SCHEMA) {
    throw new StoreError('unsupported_schema', `Nix's database has schema '${schema}', not ${SCHEMA}`, {
      hint: 'Let the Nix daemon run: it is asked instead.',
    });
  }
}
