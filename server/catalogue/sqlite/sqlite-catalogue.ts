import { chmodSync } from 'node:fs';
import Database from 'better-sqlite3';
import type { CacheName } from '../../../api/cache-name.ts';
import { ApiError } from '../../../api/problem.ts';
import type { Permission } from '../../../api/schemas.ts';
import { BcacheError } from '../../../nix/errors.ts';
import type { Sha256 } from '../../../nix/hash.ts';
import { parseSecretKey, type SecretKey } from '../../../nix/keys.ts';
import {
  hashPart,
  namePart,
  type StoreDir,
  type StorePath,
  type StorePathHash,
} from '../../../nix/store-path.ts';
import type {
  BlobRecord,
  CacheRecord,
  Catalogue,
  NewEntry,
  PartRecord,
  PublishResult,
  TokenRecord,
  UploadRecord,
} from '../catalogue.ts';
import { Queries, sql } from './queries.ts';
import { migrate, type Row } from './schema.ts';

/** The catalogue in one SQLite database in WAL mode; `file` is made, readable by its owner alone. */
export function openSqliteCatalogue(file: string): Catalogue {
  let db: Database.Database;
  try {
    db = new Database(file);
    chmodSync(file, 0o600);
    db.pragma('journal_mode = WAL');
    // What was answered as published must outlast a power cut.
    db.pragma('synchronous = FULL');
    db.pragma('foreign_keys = ON');
    db.pragma('busy_timeout = 5000');
    migrate(db);
  } catch (cause) {
    if (cause instanceof BcacheError) throw cause;
    throw new BcacheError(
      'catalogue_unusable',
      `cannot open the catalogue ${file}: ${(cause as Error).message}`,
      {
        hint: 'check that the state directory is on a working disk and belongs to the user bcache runs as',
        cause,
      },
    );
  }
  return new SqliteCatalogue(db);
}

class SqliteCatalogue implements Catalogue {
  readonly #db: Database.Database;
  readonly #queries: Queries;
  // The lookups every client request makes, prepared once.
  readonly #cache: Database.Statement<[string], Row<'caches'>>;
  readonly #narinfo: Database.Statement<[number, string], string>;
  readonly #entryNarHash: Database.Statement<[number, string], string>;
  readonly #blobOf: Database.Statement<[number, string], Row<'blobs'>>;

  constructor(db: Database.Database) {
    this.#db = db;
    this.#queries = new Queries(db);
    this.#cache = db.prepare('SELECT * FROM caches WHERE name = ?');
    this.#narinfo = db
      .prepare<[number, string], string>('SELECT narinfo FROM entries WHERE cache_id = ? AND hash = ?')
      .pluck();
    this.#entryNarHash = db
      .prepare<[number, string], string>('SELECT nar_hash FROM entries WHERE cache_id = ? AND hash = ?')
      .pluck();
    this.#blobOf = db.prepare(
      `SELECT * FROM blobs WHERE EXISTS (SELECT 1 FROM entries WHERE cache_id = ? AND nar_hash = blobs.nar_hash)
       AND nar_hash = ?`,
    );
  }

  async createCache(cache: Parameters<Catalogue['createCache']>[0]): Promise<CacheRecord> {
    return this.#db
      .transaction(() => {
        const created_at = Date.now();
        const row = this.#queries.first(
          sql
            .insertInto('caches')
            .values({ name: cache.name, public: cache.public ? 1 : 0, priority: cache.priority, created_at })
            .onConflict((conflict) => conflict.doNothing())
            .returningAll(),
        );
        if (row === undefined) {
          throw new ApiError(409, 'cache_exists', `there is a cache '${cache.name}' already`);
        }
        const key = { cache_id: row.id, secret: cache.key.exportText(), created_at };
        this.#queries.run(sql.insertInto('signing_keys').values(key));
        return cacheRecord(row);
      })
      .immediate();
  }

  async findCache(name: CacheName): Promise<CacheRecord | undefined> {
    const row = this.#cache.get(name);
    return row === undefined ? undefined : cacheRecord(row);
  }

  async signingKeys(cacheId: number): Promise<SecretKey[]> {
    const keys = this.#queries.all(
      sql.selectFrom('signing_keys').select('secret').where('cache_id', '=', cacheId).orderBy('id'),
    );
    return keys.map(({ secret }) => parseSecretKey(secret));
  }

  async createToken(token: Parameters<Catalogue['createToken']>[0]): Promise<TokenRecord> {
    const row = this.#queries.first(
      sql
        .insertInto('tokens')
        .values({
          name: token.name,
          user: token.user,
          hash: token.hash,
          permissions: token.permissions.join(' '),
          caches: token.caches.join(' '),
          created_at: Date.now(),
          expires_at: token.expiresAt?.getTime() ?? null,
        })
        .returningAll(),
    );
    return tokenRecord(row as Row<'tokens'>);
  }

  async findToken(hash: Buffer): Promise<TokenRecord | undefined> {
    const row = this.#queries.first(sql.selectFrom('tokens').selectAll().where('hash', '=', hash));
    return row === undefined ? undefined : tokenRecord(row);
  }

  async narinfo(cacheId: number, hash: StorePathHash): Promise<string | undefined> {
    return this.#narinfo.get(cacheId, hash);
  }

  async missing(cacheId: number, hashes: readonly StorePathHash[]): Promise<StorePathHash[]> {
    return hashes.filter((hash) => this.#entryNarHash.get(cacheId, hash) === undefined);
  }

  async present(cacheId: number, hashes: readonly StorePathHash[]): Promise<Map<StorePathHash, Sha256>> {
    const found = new Map<StorePathHash, Sha256>();
    for (const hash of hashes) {
      const narHash = this.#entryNarHash.get(cacheId, hash);
      if (narHash !== undefined) found.set(hash, narHash as Sha256);
    }
    return found;
  }

  async blobOf(cacheId: number, narHash: Sha256): Promise<BlobRecord | undefined> {
    const row = this.#blobOf.get(cacheId, narHash);
    return row === undefined ? undefined : blobRecord(row);
  }

  async blob(narHash: Sha256): Promise<BlobRecord | undefined> {
    const row = this.#queries.first(sql.selectFrom('blobs').selectAll().where('nar_hash', '=', narHash));
    return row === undefined ? undefined : blobRecord(row);
  }

  async publish(cacheId: number, entries: readonly NewEntry[]): Promise<PublishResult[]> {
    return this.#db.transaction(() => entries.map((entry) => this.#publishOne(cacheId, entry))).immediate();
  }

  #publishOne(cacheId: number, { info, blob, narinfo }: NewEntry): PublishResult {
    const kept = this.#entryNarHash.get(cacheId, hashPart(info.path));
    if (kept !== undefined) return { result: 'present', narHash: kept as Sha256 };
    const cache = this.#queries.first(sql.selectFrom('caches').select('store_dir').where('id', '=', cacheId));
    if (cache === undefined) throw new ApiError(404, 'unknown_cache', 'the cache was deleted meanwhile');
    if (cache.store_dir !== null && cache.store_dir !== info.storeDir) {
      return { result: 'other_store_dir', storeDir: cache.store_dir as StoreDir };
    }
    for (const reference of info.references) {
      if (reference !== info.path && this.#entryNarHash.get(cacheId, hashPart(reference)) === undefined) {
        return { result: 'missing_reference', reference };
      }
    }
    const created_at = Date.now();
    if (cache.store_dir === null) {
      this.#queries.run(
        sql.updateTable('caches').set({ store_dir: info.storeDir }).where('id', '=', cacheId),
      );
    }
    this.#queries.run(
      sql
        .insertInto('blobs')
        .values({
          nar_hash: blob.narHash,
          nar_size: blob.narSize,
          file_hash: blob.fileHash,
          file_size: blob.fileSize,
          created_at,
        })
        .onConflict((conflict) => conflict.doNothing()),
    );
    this.#queries.run(
      sql.insertInto('entries').values({
        cache_id: cacheId,
        hash: hashPart(info.path),
        name: namePart(info.path),
        nar_hash: info.narHash,
        refs: info.references.join(' '),
        narinfo,
        created_at,
      }),
    );
    return { result: 'published' };
  }

  async openUpload(upload: UploadRecord): Promise<{ upload: UploadRecord; parts: PartRecord[] }> {
    const row = this.#queries.first(
      sql
        .insertInto('uploads')
        .values({
          id: upload.id,
          cache_id: upload.cacheId,
          path: upload.path,
          nar_hash: upload.narHash,
          touched_at: Date.now(),
        })
        .onConflict((conflict) =>
          conflict.columns(['cache_id', 'path', 'nar_hash']).doUpdateSet({ touched_at: Date.now() }),
        )
        .returningAll(),
    ) as Row<'uploads'>;
    return { upload: uploadRecord(row), parts: this.#parts(row.id) };
  }

  async findUpload(
    cacheId: number,
    id: string,
  ): Promise<{ upload: UploadRecord; parts: PartRecord[] } | undefined> {
    const row = this.#queries.first(
      sql.selectFrom('uploads').selectAll().where('id', '=', id).where('cache_id', '=', cacheId),
    );
    return row === undefined ? undefined : { upload: uploadRecord(row), parts: this.#parts(id) };
  }

  async recordPart(id: string, part: PartRecord): Promise<void> {
    this.#db
      .transaction(() => {
        const touched = this.#queries.run(
          sql.updateTable('uploads').set({ touched_at: Date.now() }).where('id', '=', id),
        );
        if (touched.changes === 0)
          throw new ApiError(404, 'no_such_upload', 'the upload was given up meanwhile');
        const { size, sha256 } = part;
        this.#queries.run(
          sql
            .insertInto('upload_parts')
            .values({ upload_id: id, ...part })
            .onConflict((conflict) =>
              conflict.columns(['upload_id', 'number']).doUpdateSet({ size, sha256 }),
            ),
        );
      })
      .immediate();
  }

  async dropUpload(id: string): Promise<void> {
    this.#queries.run(sql.deleteFrom('uploads').where('id', '=', id));
  }

  async idleUploads(before: Date): Promise<string[]> {
    return this.#queries
      .all(sql.selectFrom('uploads').select('id').where('touched_at', '<', before.getTime()))
      .map((row) => row.id);
  }

  async knownUploads(ids: readonly string[]): Promise<Set<string>> {
    const known = (id: string) =>
      this.#queries.first(sql.selectFrom('uploads').select('id').where('id', '=', id)) !== undefined;
    return new Set(ids.filter(known));
  }

  async knownBlobs(hashes: readonly Sha256[]): Promise<Set<Sha256>> {
    const known = (hash: Sha256) =>
      this.#queries.first(sql.selectFrom('blobs').select('nar_hash').where('nar_hash', '=', hash)) !==
      undefined;
    return new Set(hashes.filter(known));
  }

  async close(): Promise<void> {
    this.#db.close();
  }

  #parts(id: string): PartRecord[] {
    return this.#queries.all(
      sql
        .selectFrom('upload_parts')
        .select(['number', 'size', 'sha256'])
        .where('upload_id', '=', id)
        .orderBy('number'),
    );
  }
}

function cacheRecord(row: Row<'caches'>): CacheRecord {
  return {
    id: row.id,
    name: row.name as CacheName,
    public: row.public === 1,
    storeDir: (row.store_dir ?? undefined) as StoreDir | undefined,
    priority: row.priority,
  };
}

function tokenRecord(row: Row<'tokens'>): TokenRecord {
  return {
    id: row.id,
    name: row.name,
    user: row.user,
    permissions: row.permissions.split(' ') as Permission[],
    caches: row.caches.split(' '),
    expiresAt: row.expires_at === null ? undefined : new Date(row.expires_at),
  };
}

function blobRecord(row: Row<'blobs'>): BlobRecord {
  return {
    narHash: row.nar_hash as Sha256,
    narSize: row.nar_size,
    fileHash: row.file_hash as Sha256,
    fileSize: row.file_size,
  };
}

function uploadRecord(row: Row<'uploads'>): UploadRecord {
  return {
    id: row.id,
    cacheId: row.cache_id,
    path: row.path as StorePath,
    narHash: row.nar_hash as Sha256,
  };
}
