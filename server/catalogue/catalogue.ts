import type { CacheName } from '../../api/cache-name.ts';
import type { Permission } from '../../api/schemas.ts';
import type { Sha256 } from '../../nix/hash.ts';
import type { SecretKey } from '../../nix/keys.ts';
import type { PathInfo } from '../../nix/narinfo.ts';
import type { StoreDir, StorePath, StorePathHash } from '../../nix/store-path.ts';

export interface CacheRecord {
  readonly id: number;
  readonly name: CacheName;
  readonly public: boolean;
  /** Fixed by the first entry. */
  readonly storeDir: StoreDir | undefined;
  readonly priority: number;
}

export interface TokenRecord {
  readonly id: number;
  readonly name: string;
  readonly user: string;
  readonly permissions: readonly Permission[];
  /** Names of caches, or `*` for all. */
  readonly caches: readonly string[];
  readonly expiresAt: Date | undefined;
}

/** The compressed file of one NAR, shared by every entry of every cache that has this NarHash. */
export interface BlobRecord {
  readonly narHash: Sha256;
  readonly narSize: number;
  readonly fileHash: Sha256;
  readonly fileSize: number;
}

export interface UploadRecord {
  /** Also the name of its staged file. */
  readonly id: string;
  readonly cacheId: number;
  readonly path: StorePath;
  readonly narHash: Sha256;
}

export interface PartRecord {
  readonly number: number;
  readonly size: number;
  /** Lower-case hex. */
  readonly sha256: string;
}

/** One entry that was verified and is ready to be seen. */
export interface NewEntry {
  readonly info: PathInfo;
  readonly blob: BlobRecord;
  /** The narinfo as it will be served, signatures included. */
  readonly narinfo: string;
}

export type PublishResult =
  | { readonly result: 'published' }
  | { readonly result: 'present'; readonly narHash: Sha256 }
  /** A reference has no entry in this cache. */
  | { readonly result: 'missing_reference'; readonly reference: StorePath }
  /** The cache holds entries of another store directory. */
  | { readonly result: 'other_store_dir'; readonly storeDir: StoreDir };

/**
 * Everything the origin knows, but for the bytes of NARs. Every method is atomic; what it answered is durable.
 * All are asynchronous because a catalogue may be on another machine.
 */
export interface Catalogue {
  /** @throws ApiError 409 `cache_exists` */
  createCache(cache: {
    name: CacheName;
    public: boolean;
    priority: number;
    key: SecretKey;
  }): Promise<CacheRecord>;
  findCache(name: CacheName): Promise<CacheRecord | undefined>;
  /** In the order they were added; each signs every entry. */
  signingKeys(cacheId: number): Promise<SecretKey[]>;

  createToken(token: {
    name: string;
    user: string;
    /** SHA-256 of the secret. */
    hash: Buffer;
    permissions: readonly Permission[];
    caches: readonly string[];
    expiresAt?: Date | undefined;
  }): Promise<TokenRecord>;
  /** Also those that expired; the caller tells them apart. */
  findToken(hash: Buffer): Promise<TokenRecord | undefined>;

  /** The rendered narinfo of an entry. */
  narinfo(cacheId: number, hash: StorePathHash): Promise<string | undefined>;
  /** Those of `hashes` without an entry, in their order. */
  missing(cacheId: number, hashes: readonly StorePathHash[]): Promise<StorePathHash[]>;
  /** NarHash of each entry there is among `hashes`. */
  present(cacheId: number, hashes: readonly StorePathHash[]): Promise<Map<StorePathHash, Sha256>>;
  /** A blob this cache has an entry for: another cache's bytes stay out of reach. */
  blobOf(cacheId: number, narHash: Sha256): Promise<BlobRecord | undefined>;
  /** A blob, whichever cache has it. */
  blob(narHash: Sha256): Promise<BlobRecord | undefined>;
  /** Publishes in order, all in one transaction; one result for each. The blobs' files must be durable. */
  publish(cacheId: number, entries: readonly NewEntry[]): Promise<PublishResult[]>;

  /** Finds the unfinished upload of the same NAR, or opens one. */
  openUpload(upload: UploadRecord): Promise<{ upload: UploadRecord; parts: PartRecord[] }>;
  findUpload(cacheId: number, id: string): Promise<{ upload: UploadRecord; parts: PartRecord[] } | undefined>;
  recordPart(id: string, part: PartRecord): Promise<void>;
  dropUpload(id: string): Promise<void>;
  /** Ids of uploads nothing was sent for since `before`. */
  idleUploads(before: Date): Promise<string[]>;
  /** Of `ids`, those that are open uploads. */
  knownUploads(ids: readonly string[]): Promise<Set<string>>;
  /** Of `hashes`, those that a blob record names. */
  knownBlobs(hashes: readonly Sha256[]): Promise<Set<Sha256>>;

  close(): Promise<void>;
}
