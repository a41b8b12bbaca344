import type { CommitEntry } from './schemas.ts';

/**
 * The body of a commit: a tar stream in which each path has `<hash>.json` (a {@link CommitEntry}) and, unless
 * the entry names an upload, `<hash>.nar.zst` right behind it. References come before what refers to them.
 */
export const COMMIT_TYPE = 'application/x-tar';

/** The hash part of the entry's store path; the path itself is checked by who uses it. */
export function hashOf(entry: CommitEntry): string {
  return entry.path.slice(entry.path.lastIndexOf('/') + 1).slice(0, 32);
}
