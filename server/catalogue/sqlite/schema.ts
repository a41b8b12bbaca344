import type { Database } from 'better-sqlite3';
import type { Generated, Selectable } from 'kysely';
import { BcacheError } from '../../../nix/errors.ts';

/** Columns as they are on disk. Times are milliseconds since 1970. */
export interface Tables {
  caches: {
    id: Generated<number>;
    name: string;
    public: number;
    store_dir: string | null;
    priority: number;
    created_at: number;
  };
  signing_keys: { id: Generated<number>; cache_id: number; secret: string; created_at: number };
  tokens: {
    id: Generated<number>;
    name: string;
    user: string;
    hash: Buffer;
    /** Space-separated, like `caches`. */
    permissions: string;
    caches: string;
    created_at: number;
    expires_at: number | null;
  };
  blobs: { nar_hash: string; nar_size: number; file_hash: string; file_size: number; created_at: number };
  entries: {
    cache_id: number;
    /** Hash part of the store path. */
    hash: string;
    name: string;
    nar_hash: string;
    /** Basenames, space-separated. */
    refs: string;
    narinfo: string;
    created_at: number;
  };
  uploads: {
    id: string;
    cache_id: number;
    path: string;
    nar_hash: string;
    touched_at: number;
  };
  upload_parts: { upload_id: string; number: number; size: number; sha256: string };
}

export type Row<Table extends keyof Tables> = Selectable<Tables[Table]>;

/** One step a version of the schema; a step that was released never changes. */
const STEPS = [
  `CREATE TABLE caches (
     id INTEGER PRIMARY KEY,
     name TEXT NOT NULL UNIQUE,
     public INTEGER NOT NULL,
     store_dir TEXT,
     priority INTEGER NOT NULL,
     created_at INTEGER NOT NULL
   ) STRICT;
   CREATE TABLE signing_keys (
     id INTEGER PRIMARY KEY,
     cache_id INTEGER NOT NULL REFERENCES caches ON DELETE CASCADE,
     secret TEXT NOT NULL,
     created_at INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX signing_keys_by_cache ON signing_keys (cache_id);
   CREATE TABLE tokens (
     id INTEGER PRIMARY KEY,
     name TEXT NOT NULL,
     user TEXT NOT NULL,
     hash BLOB NOT NULL UNIQUE,
     permissions TEXT NOT NULL,
     caches TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     expires_at INTEGER
   ) STRICT;
   CREATE TABLE blobs (
     nar_hash TEXT PRIMARY KEY,
     nar_size INTEGER NOT NULL,
     file_hash TEXT NOT NULL,
     file_size INTEGER NOT NULL,
     created_at INTEGER NOT NULL
   ) STRICT, WITHOUT ROWID;
   CREATE TABLE entries (
     cache_id INTEGER NOT NULL REFERENCES caches ON DELETE CASCADE,
     hash TEXT NOT NULL,
     name TEXT NOT NULL,
     nar_hash TEXT NOT NULL REFERENCES blobs,
     refs TEXT NOT NULL,
     narinfo TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     PRIMARY KEY (cache_id, hash)
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX entries_by_nar ON entries (nar_hash, cache_id);
   CREATE TABLE uploads (
     id TEXT PRIMARY KEY,
     cache_id INTEGER NOT NULL REFERENCES caches ON DELETE CASCADE,
     path TEXT NOT NULL,
     nar_hash TEXT NOT NULL,
     touched_at INTEGER NOT NULL,
     UNIQUE (cache_id, path, nar_hash)
   ) STRICT;
   CREATE TABLE upload_parts (
     upload_id TEXT NOT NULL REFERENCES uploads ON DELETE CASCADE,
     number INTEGER NOT NULL,
     size INTEGER NOT NULL,
     sha256 TEXT NOT NULL,
     PRIMARY KEY (upload_id, number)
   ) STRICT, WITHOUT ROWID;`,
];

/** Brings the database to the newest schema; `user_version` says where it is. */
export function migrate(db: Database): void {
  const version = db.pragma('user_version', { simple: true }) as number;
  if (version > STEPS.length) {
    throw new BcacheError('catalogue_too_new', 'the catalogue was written by a newer bcache', {
      hint: 'run the version of bcache that wrote it, or a newer one',
    });
  }
  db.transaction(() => {
    for (const step of STEPS.slice(version)) db.exec(step);
    db.pragma(`user_version = ${STEPS.length}`);
  }).immediate();
}
