import type { LocalPathInfo } from '../../nix/store/local-store.ts';
import type { StorePath } from '../../nix/store-path.ts';
import type { PushFailure } from './events.ts';

/** How a NAR travels: its compressed bytes within a commit, or the id of a finished upload. */
export interface ReadyNar {
  readonly inline?: readonly Buffer[];
  readonly upload?: string;
  /** Bytes of the compressed NAR. */
  readonly fileSize: number;
  /** Bytes of the NAR. */
  readonly narSize: number;
}

type State = 'waiting' | 'dumping' | 'ready' | 'committing' | 'published' | 'failed';

/** One path that the cache lacks. */
export class PushPath {
  readonly info: LocalPathInfo;
  /** Its references that the cache lacks as well, itself left out. */
  readonly references: readonly PushPath[];
  readonly referrers: PushPath[] = [];
  readonly index: number;
  state: State = 'waiting';
  nar: ReadyNar | undefined;

  constructor(info: LocalPathInfo, references: readonly PushPath[], index: number) {
    this.info = info;
    this.references = references;
    this.index = index;
    for (const reference of references) reference.referrers.push(this);
  }

  get path(): StorePath {
    return this.info.path;
  }
}

/** A commit's bounds. */
export interface BatchLimits {
  readonly paths: number;
  /** Of compressed NARs and descriptions. */
  readonly bytes: number;
}

/**
 * Which path comes next: they are dumped with references first, and are committed when each reference is
 * published, or comes before them in the same commit.
 */
export class PushGraph {
  readonly paths: readonly PushPath[];
  #next = 0;
  /** Bytes of NARs kept until they are published. */
  heldBytes = 0;
  /** Ready paths by their index. */
  #ready: PushPath[] = [];
  #readyBytes = 0;
  #open: number;

  /** @param missing what to push, references before referrers */
  constructor(missing: readonly LocalPathInfo[]) {
    const byPath = new Map<StorePath, PushPath>();
    for (const info of missing) {
      const references = info.references.flatMap((path) => byPath.get(path) ?? []);
      byPath.set(info.path, new PushPath(info, references, byPath.size));
    }
    this.paths = [...byPath.values()];
    this.#open = this.paths.length;
  }

  /** Whether every path is published or has failed. */
  get settled(): boolean {
    return this.#open === 0;
  }

  get readyCount(): number {
    return this.#ready.length;
  }

  get readyBytes(): number {
    return this.#readyBytes;
  }

  /** The next path to dump, marked so. */
  takeNext(): PushPath | undefined {
    while (this.#next < this.paths.length) {
      const path = this.paths[this.#next++] as PushPath;
      if (path.state === 'waiting') {
        path.state = 'dumping';
        return path;
      }
    }
    return undefined;
  }

  /** A dumped path can be committed. */
  ready(path: PushPath, nar: ReadyNar): void {
    path.state = 'ready';
    path.nar = nar;
    this.heldBytes += inlineBytes(path);
    this.#readyBytes += cost(path);
    // Paths become ready nearly in their order, so this looks at few.
    const at = this.#ready.findLastIndex((other) => other.index < path.index) + 1;
    this.#ready.splice(at, 0, path);
  }

  /** Ready paths that may be committed now, in the order they may be published; none if all have to wait. */
  takeBatch(limits: BatchLimits): PushPath[] {
    const batch = new Set<PushPath>();
    let bytes = 0;
    for (const path of this.#ready) {
      if (batch.size >= limits.paths) break;
      if (!path.references.every((other) => other.state === 'published' || batch.has(other))) continue;
      if (batch.size > 0 && bytes + cost(path) > limits.bytes) break;
      bytes += cost(path);
      batch.add(path);
    }
    for (const path of batch) path.state = 'committing';
    this.#ready = this.#ready.filter((path) => !batch.has(path));
    this.#readyBytes -= bytes;
    return [...batch];
  }

  /** The cache has the path: what refers to it may follow. */
  published(path: PushPath): void {
    this.#settle(path, 'published');
  }

  /**
   * The path will not come, nor what refers to it, unless that is in a commit already and so gets an
   * answer of its own. Gives every path that fails by this, with the reason: the one it needs, if that failed.
   */
  fail(path: PushPath, reason: Omit<PushFailure, 'path'>): PushFailure[] {
    this.#settle(path, 'failed');
    const culprit = path.references.find((reference) => reference.state === 'failed');
    const { code, message, hint } = reason;
    const failures = [
      culprit === undefined ? { path: path.path, code, message, hint } : referenceFailed(path, culprit),
    ];
    const failed = [path];
    for (const reference of failed) {
      for (const referrer of reference.referrers) {
        if (!['waiting', 'dumping', 'ready'].includes(referrer.state)) continue;
        this.#settle(referrer, 'failed');
        failures.push(referenceFailed(referrer, path));
        failed.push(referrer);
      }
    }
    return failures;
  }

  #settle(path: PushPath, state: 'published' | 'failed'): void {
    if (path.state === 'ready') {
      this.#ready.splice(this.#ready.indexOf(path), 1);
      this.#readyBytes -= cost(path);
    }
    this.heldBytes -= inlineBytes(path);
    path.nar = undefined;
    path.state = state;
    this.#open--;
  }
}

/** What is said of a path that cannot be published because one it needs was not. */
function referenceFailed(path: PushPath, culprit: PushPath): PushFailure {
  return {
    path: path.path,
    code: 'reference_failed',
    message: `it needs ${culprit.path}, which could not be pushed`,
  };
}

function inlineBytes(path: PushPath): number {
  return path.nar?.inline === undefined ? 0 : path.nar.fileSize;
}

/** About as many bytes as the path takes in a commit. */
function cost(path: PushPath): number {
  return inlineBytes(path) + 2048 + 80 * path.info.references.length;
}
