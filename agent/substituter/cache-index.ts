import { existsSync, renameSync, rmSync } from 'node:fs';
import Database from 'better-sqlite3';
import type { Logger } from 'pino';
import { BcacheError } from '../../nix/errors.ts';
import type { StorePathHash } from '../../nix/store-path.ts';

/** A narinfo as the agent answers it, and where its NAR comes from. */
export interface KeptNarInfo {
  /** {@link Upstream.id} of the cache it came from. */
  readonly upstream: string;
  /** The NAR's address as that cache gave it. */
  readonly narUrl: string;
  /** The document as the agent serves it. */
  readonly text: string;
}

/** A kept NAR file that the index knows: its name and its bytes. */
export interface KeptNar {
  readonly name: string;
  readonly size: number;
}

const SCHEMA_VERSION = 1;
const SCHEMA = `
  CREATE TABLE narinfos (
    hash TEXT PRIMARY KEY, upstream TEXT NOT NULL, nar_url TEXT NOT NULL, text TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE nars (
    name TEXT PRIMARY KEY, size INTEGER NOT NULL, last_used INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX nars_by_use ON nars (last_used);
  CREATE TABLE cache_infos (upstream TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID;
`;

/** Last use is written in batches: a read of the cache must not become a write to the disk. */
const TOUCH_INTERVAL_MS = 10_000;

/**
 * What the local cache holds, in SQLite. It is a cache of a cache: after a failure it answers "not here"
 * and says so in the log, because asking the upstream again is always right.
 */
export class CacheIndex {
  readonly #database: Database.Database;
  readonly #statements: ReturnType<typeof prepare>;
  readonly #logger: Logger;
  readonly #touched = new Map<string, number>();
  readonly #timer: NodeJS.Timeout;
  #narBytes: number;

  private constructor(database: Database.Database, logger: Logger) {
    this.#database = database;
    this.#logger = logger;
    this.#statements = prepare(database);
    this.#narBytes = this.#statements.narBytes.get()?.bytes ?? 0;
    this.#timer = setInterval(() => this.flush(), TOUCH_INTERVAL_MS);
    this.#timer.unref();
  }

  /**
   * Opens the index, or makes it. One that is damaged or of another version is set aside and begun anew;
   * where the disk allows neither, the index lives in memory until the agent starts again.
   *
   * @throws BcacheError state_in_use while another agent has it open
   */
  static open(path: string, logger: Logger): CacheIndex {
    try {
      return new CacheIndex(openDatabase(path), logger);
    } catch (error) {
      if (isBusy(error)) throw inUse(path, error);
      if (existsSync(path)) {
        const aside = `${path}.damaged-${Date.now()}`;
        logger.error(
          { err: error, aside },
          'the index of the local cache cannot be read: beginning a new one',
        );
        renameSync(path, aside);
      }
    }
    for (const suffix of ['-wal', '-shm']) rmSync(path + suffix, { force: true });
    try {
      return new CacheIndex(openDatabase(path), logger);
    } catch (error) {
      logger.error({ err: error }, 'the index of the local cache cannot be written: nothing will be kept');
      return new CacheIndex(openDatabase(':memory:'), logger);
    }
  }

  /** Bytes of all kept NAR files. */
  get narBytes(): number {
    return this.#narBytes;
  }

  narInfo(hash: StorePathHash): KeptNarInfo | undefined {
    return this.#guard(() => this.#statements.narInfo.get(hash), undefined);
  }

  keepNarInfo(hash: StorePathHash, kept: KeptNarInfo): void {
    this.#guard(
      () => this.#statements.keepNarInfo.run(hash, kept.upstream, kept.narUrl, kept.text),
      undefined,
    );
  }

  forgetNarInfo(hash: StorePathHash): void {
    this.#guard(() => this.#statements.forgetNarInfo.run(hash), undefined);
  }

  cacheInfo(upstream: string): string | undefined {
    return this.#guard(() => this.#statements.cacheInfo.get(upstream)?.text, undefined);
  }

  keepCacheInfo(upstream: string, text: string): void {
    this.#guard(() => this.#statements.keepCacheInfo.run(upstream, text), undefined);
  }

  /** The size of a kept NAR file. */
  narSize(name: string): number | undefined {
    return this.#guard(() => this.#statements.nar.get(name)?.size, undefined);
  }

  /** Remembers, some seconds later, that the NAR was used now. */
  touchNar(name: string): void {
    this.#touched.set(name, Date.now());
  }

  /** @returns whether the row is there now */
  keepNar({ name, size }: KeptNar): boolean {
    const before = this.narSize(name) ?? 0;
    const kept = this.#guard(() => this.#statements.keepNar.run(name, size, Date.now()).changes > 0, false);
    if (kept) this.#narBytes += size - before;
    return kept;
  }

  forgetNar(name: string): void {
    const size = this.narSize(name) ?? 0;
    const gone = this.#guard(() => this.#statements.forgetNar.run(name).changes > 0, false);
    if (gone) this.#narBytes -= size;
  }

  /** The NARs that nobody used for longest. */
  leastUsed(limit: number): KeptNar[] {
    this.flush();
    return this.#guard(() => this.#statements.leastUsed.all(limit), []);
  }

  /** Every kept NAR's name. */
  narNames(): string[] {
    return this.#guard(() => this.#statements.narNames.all(), []);
  }

  /** Writes what {@link touchNar} noted. */
  flush(): void {
    if (this.#touched.size === 0) return;
    const touched = [...this.#touched];
    this.#touched.clear();
    this.#guard(
      () =>
        this.#database.transaction(() => {
          for (const [name, time] of touched) this.#statements.touch.run(time, name);
        })(),
      undefined,
    );
  }

  close(): void {
    clearInterval(this.#timer);
    this.flush();
    this.#database.close();
  }

  #guard<T>(operation: () => T, otherwise: T): T {
    try {
      return operation();
    } catch (error) {
      this.#logger.error({ err: error }, 'the index of the local cache failed');
      return otherwise;
    }
  }
}

function openDatabase(path: string): Database.Database {
  const database = new Database(path, { timeout: 500 });
  try {
    // One agent a state directory: a second one would sweep away what the first is writing.
    database.pragma('locking_mode = EXCLUSIVE');
    database.pragma('journal_mode = WAL');
    database.pragma('synchronous = NORMAL');
    const version = database.pragma('user_version', { simple: true });
    if (version === 0) {
      database.transaction(() => {
        database.exec(SCHEMA);
        database.pragma(`user_version = ${SCHEMA_VERSION}`);
      })();
    } else if (version !== SCHEMA_VERSION) {
      throw new BcacheError('state_version', `the index has version ${version}, not ${SCHEMA_VERSION}`);
    }
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

function prepare(database: Database.Database) {
  return {
    narInfo: database.prepare<[string], KeptNarInfo>(
      'SELECT upstream, nar_url AS narUrl, text FROM narinfos WHERE hash = ?',
    ),
    keepNarInfo: database.prepare('INSERT OR REPLACE INTO narinfos VALUES (?, ?, ?, ?)'),
    forgetNarInfo: database.prepare('DELETE FROM narinfos WHERE hash = ?'),
    cacheInfo: database.prepare<[string], { text: string }>(
      'SELECT text FROM cache_infos WHERE upstream = ?',
    ),
    keepCacheInfo: database.prepare('INSERT OR REPLACE INTO cache_infos VALUES (?, ?)'),
    nar: database.prepare<[string], { size: number }>('SELECT size FROM nars WHERE name = ?'),
    keepNar: database.prepare('INSERT OR REPLACE INTO nars VALUES (?, ?, ?)'),
    forgetNar: database.prepare('DELETE FROM nars WHERE name = ?'),
    touch: database.prepare('UPDATE nars SET last_used = ? WHERE name = ?'),
    leastUsed: database.prepare<[number], KeptNar>('SELECT name, size FROM nars ORDER BY last_used LIMIT ?'),
    narNames: database.prepare<[], string>('SELECT name FROM nars').pluck(),
    narBytes: database.prepare<[], { bytes: number }>('SELECT coalesce(sum(size), 0) AS bytes FROM nars'),
  };
}

function isBusy(error: unknown): boolean {
  return error instanceof Database.SqliteError && error.code.startsWith('SQLITE_BUSY');
}

function inUse(path: string, cause: unknown): BcacheError {
  return new BcacheError('state_in_use', `another agent uses ${path}`, {
    hint: 'Stop it, or give this agent a state directory of its own.',
    cause,
  });
}
