import type { CacheName } from '../../api/cache-name.ts';
import type { OriginClient } from '../../api/client.ts';
import { ApiError } from '../../api/problem.ts';
import type { CommitEntry, CommitResult } from '../../api/schemas.ts';
import { formatSha256 } from '../../nix/hash.ts';
import { fullPath } from '../../nix/store-path.ts';
import type { PushPath, ReadyNar } from './graph.ts';
import { isTransient, type Retrying, retry } from './retry.ts';

/** The origin takes no more signatures of one path. */
const MAX_SIGNATURES = 64;

export interface CommitTarget {
  readonly origin: OriginClient;
  readonly cache: CacheName;
  readonly retrying: Retrying;
}

interface CommitItem {
  readonly path: PushPath;
  readonly entry: CommitEntry;
  nar: readonly Buffer[] | undefined;
}

/** What became of one path: the origin's word, or why the origin could not be asked about it. */
export type Outcome = CommitResult | ApiError;

/**
 * Commits `paths`, which all have their NAR ready, and tells of each path as the origin answers, in order.
 * After a connection that broke, only those are sent again of which nothing was heard; what a commit as a whole
 * is refused for is put down to one path by sending each alone.
 *
 * @throws ApiError that concerns every path, see {@link endsPush}
 */
export async function commitBatch(
  target: CommitTarget,
  paths: readonly PushPath[],
  onOutcome: (path: PushPath, outcome: Outcome) => void,
): Promise<void> {
  const items = paths.map((path): CommitItem => {
    const nar = path.nar as ReadyNar;
    return { path, entry: entryOf(path, nar), nar: nar.inline };
  });
  let answered = 0;
  const send = async (count: number): Promise<void> => {
    const end = Math.min(answered + count, items.length);
    await retry(async () => {
      const results = target.origin.commit(target.cache, items.slice(answered, end));
      for await (const result of results) {
        const item = items[answered];
        if (item === undefined || answered >= end || result.path !== item.entry.path) {
          throw new ApiError(200, 'bad_answer', `the origin answered for ${result.path} out of turn`);
        }
        answered++;
        item.nar = undefined;
        onOutcome(item.path, result);
      }
      if (answered < end)
        throw new ApiError(0, 'unreachable', 'the answer of the origin to a commit broke off');
    }, target.retrying);
  };
  let count = items.length;
  while (answered < items.length) {
    try {
      await send(count);
    } catch (error) {
      if (!(error instanceof ApiError) || endsPush(error)) throw error;
      if (items.length - answered > 1 && count > 1) count = 1;
      else onOutcome((items[answered++] as CommitItem).path, error);
    }
  }
}

/**
 * Whether an answer makes it pointless to go on with other paths: no access, no such cache, a full disk, or an
 * origin that was away all the time.
 */
export function endsPush(error: ApiError): boolean {
  return (
    [401, 403, 404, 507].includes(error.status) || (isTransient(error) && ![502, 504].includes(error.status))
  );
}

function entryOf({ info }: PushPath, nar: ReadyNar): CommitEntry {
  return {
    path: fullPath(info.storeDir, info.path),
    narHash: formatSha256(info.narHash),
    narSize: nar.narSize,
    references: [...info.references],
    signatures: info.signatures.slice(0, MAX_SIGNATURES),
    ...(info.deriver === undefined ? {} : { deriver: info.deriver }),
    ...(info.ca === undefined ? {} : { ca: info.ca }),
    ...(nar.upload === undefined ? {} : { upload: nar.upload }),
  };
}
