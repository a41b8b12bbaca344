import { accessSync, constants, existsSync } from 'node:fs';
import { join } from 'node:path';
import { StoreError } from '../errors.ts';
import { DEFAULT_STORE_DIR, parseStoreDir, type StoreDir } from '../store-path.ts';
import { DaemonConnection } from './daemon/connection.ts';
import { DaemonStore, DaemonTempRoots } from './daemon/store.ts';
import { connectSocket, spawnDaemon } from './daemon/transport.ts';
import type { LocalStore, TempRoots } from './local-store.ts';
import { SqliteStore } from './sqlite.ts';

export interface OpenedStore {
  readonly store: LocalStore;
  /** The same store where it is read from Nix's database; it also tells what became valid when. */
  readonly database: SqliteStore | undefined;
  /**
   * Roots that last until they are closed. @throws StoreError `no_temp_roots` where neither a daemon
   * answers nor the store may be written to by this user: without them, collecting garbage may take away
   * what is being read.
   */
  tempRoots(): Promise<TempRoots>;
}

/** Where the environment says the store is. */
interface Place {
  readonly storeDir: StoreDir;
  readonly stateDir: string;
  readonly socketPath: string;
  /** Whether the socket was chosen explicitly, and may belong to another store than the state directory. */
  readonly socketOnly: boolean;
}

/**
 * Opens the local Nix store that Nix's own commands would use with this environment (NIX_REMOTE,
 * NIX_STORE_DIR, NIX_STATE_DIR, NIX_DAEMON_SOCKET_PATH): by its database where that can be read, else by
 * the daemon.
 *
 * @throws StoreError `no_nix`, `unsupported_store`, or what keeps the database from being read
 */
export async function openLocalStore(env: NodeJS.ProcessEnv = process.env): Promise<OpenedStore> {
  const place = findPlace(env);
  const tempRoots = async () => new DaemonTempRoots(place.storeDir, await openForRoots(place, env));
  const problems: StoreError[] = [];
  if (!place.socketOnly) {
    try {
      const database = new SqliteStore(place.storeDir, place.stateDir);
      return { store: database, database, tempRoots };
    } catch (error) {
      problems.push(asStoreError(error));
    }
  }
  try {
    const connection = await openDaemon(place, env);
    connection.close();
    const store = new DaemonStore(place.storeDir, () => openDaemon(place, env));
    return { store, database: undefined, tempRoots };
  } catch (error) {
    problems.push(asStoreError(error));
  }
  if (!place.socketOnly && !existsSync(place.stateDir) && !existsSync(place.socketPath)) {
    throw new StoreError('no_nix', `there is no Nix on this machine: ${place.stateDir} does not exist`, {
      hint: 'Install Nix, or set NIX_STATE_DIR and NIX_STORE_DIR to where it is.',
      cause: problems[0],
    });
  }
  // The database comes first: where it can be read, no daemon is needed.
  throw problems[0]!;
}

function findPlace(env: NodeJS.ProcessEnv): Place {
  const stateDir = env.NIX_STATE_DIR || '/nix/var/nix';
  const place = {
    storeDir: parseStoreDir(env.NIX_STORE_DIR || env.NIX_STORE || DEFAULT_STORE_DIR),
    stateDir,
    socketPath: env.NIX_DAEMON_SOCKET_PATH || join(stateDir, 'daemon-socket', 'socket'),
    socketOnly: false,
  };
  const remote = env.NIX_REMOTE ?? '';
  if (['', 'auto', 'local', 'daemon', 'unix://'].includes(remote)) return place;
  if (remote.startsWith('unix://') && !remote.includes('?')) {
    return { ...place, socketPath: remote.slice('unix://'.length), socketOnly: true };
  }
  throw new StoreError('unsupported_store', `NIX_REMOTE is '${remote}', which is no store of this machine`, {
    hint: "Unset it, or set it to 'daemon', 'local' or 'unix://<socket>'.",
  });
}

/** The daemon at the socket, or one of our own where this user may write to the store. */
async function openDaemon(place: Place, env: NodeJS.ProcessEnv): Promise<DaemonConnection> {
  try {
    return await DaemonConnection.open(await connectSocket(place.socketPath));
  } catch (error) {
    if (place.socketOnly || !writable(place.stateDir)) throw error;
  }
  return DaemonConnection.open(await spawnDaemon(env));
}

async function openForRoots(place: Place, env: NodeJS.ProcessEnv): Promise<DaemonConnection> {
  try {
    return await openDaemon(place, env);
  } catch (error) {
    const { message, hint } = asStoreError(error);
    throw new StoreError('no_temp_roots', `nothing can be protected from garbage collection: ${message}`, {
      hint: hint ?? 'Start the Nix daemon.',
      cause: error,
    });
  }
}

function writable(dir: string): boolean {
  try {
    accessSync(dir, constants.R_OK | constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

function asStoreError(error: unknown): StoreError {
  if (error instanceof StoreError) return error;
  throw error;
}
