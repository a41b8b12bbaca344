import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BcacheError } from '../nix/errors.ts';

/** Where origin and agent keep everything: `BCACHE_STATE`, else `.bcache` beside the program. */
export function stateDir(env: NodeJS.ProcessEnv): string {
  return env.BCACHE_STATE || fileURLToPath(new URL('../.bcache', import.meta.url));
}

/** What `bcache start` leaves for the client: which origin it started, and the token to push there. */
export interface ClientState {
  readonly url: string;
  readonly token: string;
}

const FILE = 'client.json';

/** @returns undefined where there is none. @throws BcacheError where it cannot be read */
export function readClientState(directory: string): ClientState | undefined {
  const file = join(directory, FILE);
  try {
    const value = JSON.parse(readFileSync(file, 'utf8')) as Partial<ClientState>;
    if (typeof value.url === 'string' && typeof value.token === 'string') {
      return { url: value.url, token: value.token };
    }
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'EACCES') return undefined;
    throw new BcacheError('bad_client_state', `cannot read ${file}: ${message}`, { cause });
  }
  throw new BcacheError('bad_client_state', `${file} does not name an origin and a token`, {
    hint: 'Delete it and run npm start again: it makes a new one.',
  });
}

/** Readable by its owner alone from the moment it exists. */
export function writeClientState(directory: string, state: ClientState): void {
  const file = join(directory, FILE);
  const temporary = `${file}.${process.pid}`;
  writeFileSync(temporary, `${JSON.stringify(state)}\n`, { mode: 0o600 });
  renameSync(temporary, file);
}
