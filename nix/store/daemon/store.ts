import { StoreError } from '../../errors.ts';
import type { StoreDir, StorePath, StorePathHash } from '../../store-path.ts';
import { closureOrder, invalidPath } from '../closure-order.ts';
import type { LocalPathInfo, LocalStore, TempRoots } from '../local-store.ts';
import type { DaemonConnection } from './connection.ts';
import { readNar } from './nar.ts';
import { addTempRoot, isValidPath, queryPathFromHashPart, queryPathInfo } from './operations.ts';

export type Connect = () => Promise<DaemonConnection>;

/** The local store as the Nix daemon has it. Connects when first asked, and anew after a daemon's restart. */
export class DaemonStore implements LocalStore {
  readonly storeDir: StoreDir;
  readonly #connect: Connect;
  #connection: Promise<DaemonConnection> | undefined;

  constructor(storeDir: StoreDir, connect: Connect) {
    this.storeDir = storeDir;
    this.#connect = connect;
  }

  isValidPath(path: StorePath): Promise<boolean> {
    return this.#ask((connection) => isValidPath(connection, this.storeDir, path));
  }

  queryPathInfo(path: StorePath): Promise<LocalPathInfo | undefined> {
    return this.#ask((connection) => queryPathInfo(connection, this.storeDir, path));
  }

  queryPathFromHashPart(hash: StorePathHash): Promise<StorePath | undefined> {
    return this.#ask((connection) => queryPathFromHashPart(connection, this.storeDir, hash));
  }

  async queryClosure(roots: readonly StorePath[]): Promise<LocalPathInfo[]> {
    return closureOrder(await this.#ask((connection) => this.#walk(connection, roots)), roots);
  }

  /**
   * The NAR of a path, over a connection of its own that lasts as long as the iteration.
   *
   * @throws StoreError `invalid_path`, and those of {@link readNar}
   */
  async *readNar(path: StorePath): AsyncGenerator<Buffer> {
    const connection = await this.#connect();
    try {
      const info = await queryPathInfo(connection, this.storeDir, path);
      if (info === undefined) throw invalidPath(path);
      yield* readNar(connection, info);
    } finally {
      connection.close();
    }
  }

  async close(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    (await connection?.catch(() => undefined))?.close();
  }

  /** All of the closure: each path is asked for as soon as it is known of, without waiting for others. */
  async #walk(
    connection: DaemonConnection,
    roots: readonly StorePath[],
  ): Promise<Map<StorePath, LocalPathInfo>> {
    const infos = new Map<StorePath, LocalPathInfo>();
    const asked = new Set<StorePath>();
    const queue: { path: StorePath; info: Promise<LocalPathInfo | undefined> }[] = [];
    const ask = (path: StorePath): void => {
      if (asked.has(path)) return;
      asked.add(path);
      const info = queryPathInfo(connection, this.storeDir, path);
      // Awaited in turn below; until then a failure must not count as unhandled.
      info.catch(() => {});
      queue.push({ path, info });
    };
    for (const root of roots) ask(root);
    for (let at = 0; at < queue.length; at++) {
      const { path, info } = queue[at]!;
      const found = await info;
      if (found === undefined) throw invalidPath(path);
      infos.set(path, found);
      for (const reference of found.references) ask(reference);
    }
    return infos;
  }

  async #ask<T>(question: (connection: DaemonConnection) => Promise<T>): Promise<T> {
    for (let fresh = false; ; fresh = true) {
      if (this.#connection === undefined) {
        this.#connection = this.#connect();
        fresh = true;
      }
      const opening = this.#connection;
      try {
        return await question(await opening);
      } catch (error) {
        const connection = await opening.catch(() => undefined);
        if (connection !== undefined && !connection.broken) throw error;
        if (this.#connection === opening) this.#connection = undefined;
        // One that lay idle may have been closed since by a daemon that was restarted.
        if (fresh || !(error instanceof StoreError && error.code === 'daemon_closed')) throw error;
      }
    }
  }
}

/** Temp roots of a connection: the daemon drops them when it ends, however it ends. */
export class DaemonTempRoots implements TempRoots {
  readonly #storeDir: StoreDir;
  readonly #connection: DaemonConnection;

  constructor(storeDir: StoreDir, connection: DaemonConnection) {
    this.#storeDir = storeDir;
    this.#connection = connection;
  }

  add(path: StorePath): Promise<void> {
    return addTempRoot(this.#connection, this.#storeDir, path);
  }

  async close(): Promise<void> {
    this.#connection.close();
  }
}
