import { sortReferences } from '../../narinfo.ts';
import { fullPath, type StoreDir, type StorePath, type StorePathHash } from '../../store-path.ts';
import { parseDeriver, parseIn, parseNarHash, parseSignatures, reading } from '../fields.ts';
import type { LocalPathInfo } from '../local-store.ts';
import type { DaemonConnection } from './connection.ts';

/** The operations asked for here, by the number the protocol gives them. */
export const OPERATION = {
  isValidPath: 1,
  addTempRoot: 11,
  queryPathInfo: 26,
  queryPathFromHashPart: 29,
  narFromPath: 38,
} as const;

const THE_DAEMON = 'an answer of the Nix daemon';

export function isValidPath(connection: DaemonConnection, storeDir: StoreDir, path: StorePath) {
  return connection.request(OPERATION.isValidPath, [fullPath(storeDir, path)], (reader) => reader.boolean());
}

/** `undefined` where the path is not valid. */
export async function queryPathInfo(
  connection: DaemonConnection,
  storeDir: StoreDir,
  path: StorePath,
): Promise<LocalPathInfo | undefined> {
  const answer = await connection.request(
    OPERATION.queryPathInfo,
    [fullPath(storeDir, path)],
    async (reader) => {
      if (!(await reader.boolean())) return undefined;
      return {
        deriver: await reader.text(),
        narHash: await reader.text(),
        references: await reader.texts(),
        registrationTime: await reader.number(),
        narSize: await reader.number(),
        ultimate: await reader.boolean(),
        signatures: await reader.texts(),
        ca: await reader.text(),
      };
    },
  );
  if (answer === undefined) return undefined;
  // Read whole, then parsed: what is malformed in it leaves the connection in step.
  return reading(THE_DAEMON, () => ({
    storeDir,
    path,
    narHash: parseNarHash(answer.narHash),
    narSize: answer.narSize,
    references: sortReferences(answer.references.map((text) => parseIn(storeDir, text))),
    deriver: parseDeriver(storeDir, answer.deriver),
    signatures: parseSignatures(answer.signatures),
    ca: answer.ca || undefined,
    registrationTime: answer.registrationTime,
    ultimate: answer.ultimate,
  }));
}

/** `undefined` where no valid path begins with `hash`. */
export async function queryPathFromHashPart(
  connection: DaemonConnection,
  storeDir: StoreDir,
  hash: StorePathHash,
): Promise<StorePath | undefined> {
  const text = await connection.request(OPERATION.queryPathFromHashPart, [hash], (reader) => reader.text());
  return text === '' ? undefined : reading(THE_DAEMON, () => parseIn(storeDir, text));
}

export async function addTempRoot(connection: DaemonConnection, storeDir: StoreDir, path: StorePath) {
  await connection.request(OPERATION.addTempRoot, [fullPath(storeDir, path)], (reader) => reader.number());
}
