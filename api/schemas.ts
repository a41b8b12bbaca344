import Type, { type Static } from 'typebox';
import { CACHE_NAME_PATTERN } from './cache-name.ts';
import { LIMITS } from './limits.ts';

const closed = { additionalProperties: false } as const;

const STORE_HASH = '^[0-9a-df-np-sv-z]{32}$';
const BASENAME = '^[0-9a-df-np-sv-z]{32}-[0-9A-Za-z+\\-._?=]{1,211}$';
const SHA256 = '^sha256:[0-9a-df-np-sv-z]{52}$';

/** What every failed API call answers (RFC 9457), with `code` for programs and `hint` for the next step. */
export const Problem = Type.Object({
  type: Type.Literal('about:blank'),
  title: Type.String(),
  status: Type.Integer(),
  code: Type.String(),
  hint: Type.Optional(Type.String()),
});
export type Problem = Static<typeof Problem>;

export const CacheName = Type.String({ pattern: CACHE_NAME_PATTERN });
export const StorePathHash = Type.String({ pattern: STORE_HASH });

export const Cache = Type.Object({
  name: CacheName,
  public: Type.Boolean(),
  /** Fixed by the cache's first entry; null before. */
  storeDir: Type.Union([Type.String(), Type.Null()]),
  /** Of `nix-cache-info`: the lower, the earlier Nix asks. */
  priority: Type.Integer(),
  /** As `trusted-public-keys` lists them. */
  publicKeys: Type.Array(Type.String()),
});
export type Cache = Static<typeof Cache>;

export const CacheCreate = Type.Object(
  {
    name: CacheName,
    public: Type.Optional(Type.Boolean({ default: true })),
    priority: Type.Optional(Type.Integer({ minimum: 0, maximum: 1_000_000, default: 30 })),
  },
  closed,
);
export type CacheCreate = Static<typeof CacheCreate>;

export const PERMISSIONS = ['read', 'push', 'delete', 'manage'] as const;
export type Permission = (typeof PERMISSIONS)[number];

export const User = Type.Object({
  name: Type.String(),
  token: Type.Object({
    name: Type.String(),
    permissions: Type.Array(Type.Enum([...PERMISSIONS])),
    /** Names of caches, or `*` for all. */
    caches: Type.Array(Type.String()),
    expiresAt: Type.Union([Type.String(), Type.Null()]),
  }),
});
export type User = Static<typeof User>;

export const MissingRequest = Type.Object(
  { hashes: Type.Array(StorePathHash, { maxItems: LIMITS.missingHashes }) },
  closed,
);
export const MissingResponse = Type.Object({ missing: Type.Array(StorePathHash) });
export type MissingResponse = Static<typeof MissingResponse>;

export const UploadCreate = Type.Object(
  {
    /** `<hash>-<name>` */
    path: Type.String({ pattern: BASENAME }),
    narHash: Type.String({ pattern: SHA256 }),
  },
  closed,
);
export type UploadCreate = Static<typeof UploadCreate>;

/** A compressed NAR on its way, in parts that may come in any order and again. */
export const Upload = Type.Object({
  id: Type.String(),
  /** Bytes of every part but the last. */
  partSize: Type.Integer(),
  /** What is there already, so that a push that was cut off goes on where it was. */
  parts: Type.Array(
    Type.Object({
      /** From 0. */
      number: Type.Integer(),
      size: Type.Integer(),
      /** Lower-case hex. */
      sha256: Type.String(),
    }),
  ),
});
export type Upload = Static<typeof Upload>;

/** One path in a commit: what the origin checks, signs and publishes. */
export const CommitEntry = Type.Object(
  {
    /** `/nix/store/<hash>-<name>` */
    path: Type.String({ maxLength: 2048 }),
    narHash: Type.String({ pattern: SHA256 }),
    narSize: Type.Integer({ minimum: 1 }),
    references: Type.Array(Type.String({ pattern: BASENAME }), { maxItems: LIMITS.references }),
    deriver: Type.Optional(Type.String({ pattern: BASENAME })),
    ca: Type.Optional(Type.String({ maxLength: 512 })),
    /** Signatures the path already carries; kept beside the cache's own. */
    signatures: Type.Array(Type.String({ maxLength: 1024 }), { maxItems: 64 }),
    /** The finished upload that holds the NAR; absent where the NAR follows in the same request. */
    upload: Type.Optional(Type.String({ maxLength: 64 })),
  },
  closed,
);
export type CommitEntry = Static<typeof CommitEntry>;

/** What became of one path of a commit; one JSON line each, in the order they were sent. */
export const CommitResult = Type.Object({
  path: Type.String(),
  /** `present`: an entry was there before and stays as it was. */
  result: Type.Union([Type.Literal('published'), Type.Literal('present'), Type.Literal('refused')]),
  /** With `present`: the NarHash that is kept, where the one sent differs. */
  keptNarHash: Type.Optional(Type.String()),
  /** With `refused`. */
  code: Type.Optional(Type.String()),
  message: Type.Optional(Type.String()),
});
export type CommitResult = Static<typeof CommitResult>;
