/** Upper bounds that client and origin agree on. */
export const LIMITS = {
  /** Store hashes in one *missing* request. */
  missingHashes: 200_000,
  /** Bytes of one upload part; every part but the last has exactly the upload's `partSize`. */
  partBytes: 32 << 20,
  /** Bytes of one commit request, its NARs included. */
  commitBytes: 64 << 20,
  /** Entries in one commit request. */
  commitEntries: 4096,
  /** Bytes of one compressed NAR that travels inside a commit. */
  inlineNarBytes: 8 << 20,
  /** References of one store path. */
  references: 50_000,
} as const;
