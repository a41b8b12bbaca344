import type { PathInfo } from '../narinfo.ts';
import type { StoreDir, StorePath } from '../store-path.ts';

/** What the local Nix store knows of a valid path. */
export interface LocalPathInfo extends PathInfo {
  /** Seconds since 1970 at which the path became valid here. */
  readonly registrationTime: number;
  /** Whether it was built on this machine, not substituted or copied to it. */
  readonly ultimate: boolean;
}

/** The local Nix store, read only, whichever way it is reached. */
export interface LocalStore {
  readonly storeDir: StoreDir;

  /** `undefined` where the path is not valid. @throws StoreError where the store cannot be read. */
  queryPathInfo(path: StorePath): Promise<LocalPathInfo | undefined>;

  /**
   * The runtime closure of `roots`: every path once, references before their referrers, in the same
   * order for the same store and roots.
   *
   * @throws StoreError `invalid_path` naming the path, where a root is not valid.
   */
  queryClosure(roots: readonly StorePath[]): Promise<LocalPathInfo[]>;

  close(): Promise<void>;
}

/** Protects paths, with their closures, from garbage collection until it is closed. */
export interface TempRoots {
  /** Protects `path`, valid or not: add first, ask for validity second. @throws StoreError */
  add(path: StorePath): Promise<void>;

  /** Gives up the protection; harmless the second time. */
  close(): Promise<void>;
}
