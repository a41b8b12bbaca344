import { createHash } from 'node:crypto';
import { StoreError } from '../../errors.ts';
import { sha256FromBytes } from '../../hash.ts';
import { fullPath } from '../../store-path.ts';
import type { LocalPathInfo } from '../local-store.ts';
import type { DaemonConnection } from './connection.ts';
import { MESSAGE, readError } from './messages.ts';
import { OPERATION } from './operations.ts';
import { encode, type WireReader } from './wire.ts';

/** Bytes of what came last that are kept, to find the daemon's words in where the NAR breaks off. */
const TAIL = 64 << 10;

/**
 * The NAR of a valid path, in chunks that are never copied: `info.narSize` bytes with the hash
 * `info.narHash`, or an error before the last of them. Takes the connection for itself; it is closed at
 * the end.
 *
 * @throws StoreError `nar_failed` where the daemon cannot read the path, `nar_mismatch` where the files are
 *   not those that were registered
 */
export async function* readNar(connection: DaemonConnection, info: LocalPathInfo): AsyncGenerator<Buffer> {
  const { storeDir, path, narSize, narHash } = info;
  try {
    const reader = await connection.request(
      OPERATION.narFromPath,
      [fullPath(storeDir, path)],
      async (reader) => reader,
    );
    const hash = createHash('sha256');
    let held: Buffer = Buffer.alloc(0);
    let tail: Buffer = Buffer.alloc(0);
    for (let left = narSize; left > 0; ) {
      let chunk: Buffer;
      try {
        chunk = await reader.some(left);
      } catch (error) {
        throw await findError(reader, connection.version, tail, error);
      }
      left -= chunk.length;
      hash.update(chunk);
      tail = chunk.length >= TAIL ? chunk.subarray(-TAIL) : Buffer.concat([tail, chunk]).subarray(-TAIL);
      // The last chunk waits for the verdict: who counts bytes must not take a broken NAR for a whole one.
      if (held.length > 0) yield held;
      held = chunk;
    }
    if (sha256FromBytes(hash.digest()) !== narHash) {
      const mismatch = new StoreError('nar_mismatch', `the files of '${path}' are not those Nix registered`, {
        hint: "Repair them: 'nix-store --verify --check-contents --repair'.",
      });
      throw await findError(reader, connection.version, tail, mismatch);
    }
    yield held;
  } finally {
    connection.close();
  }
}

/**
 * The daemon promises the NAR before it reads the path. Where it then fails, its error follows in the
 * middle of the NAR, and the end of the connection; `otherwise` is what to throw if there is none.
 */
async function findError(
  reader: WireReader,
  version: number,
  tail: Buffer,
  otherwise: unknown,
): Promise<unknown> {
  const word = encode(MESSAGE.error);
  const at = tail.lastIndexOf(word);
  if (at === -1) return otherwise;
  try {
    reader.timeout = 5_000;
    reader.unread(tail.subarray(at + word.length));
    const { message } = await readError(reader, version);
    return new StoreError('nar_failed', message, {
      hint: "The store may be damaged: 'nix-store --verify --check-contents' says where.",
    });
  } catch {
    return otherwise;
  }
}
