import type { StorePath } from '../../nix/store-path.ts';

/** Why one path could not be pushed. */
export interface PushFailure {
  readonly path: StorePath;
  readonly code: string;
  readonly message: string;
  readonly hint?: string | undefined;
}

/** What happens during a push, as it happens. */
export type PushEvent =
  /** First of all: what the cache lacks. `narBytes` are of the missing paths. */
  | {
      readonly type: 'plan';
      readonly closure: number;
      readonly missing: number;
      readonly narBytes: number;
    }
  /** That many more bytes of NARs were read from the store. */
  | { readonly type: 'dumped'; readonly narBytes: number }
  /** That many more bytes arrived at the origin. */
  | { readonly type: 'sent'; readonly bytes: number }
  /** The origin published a path, or had it by now; sizes in bytes, the NAR's and its compressed form's. */
  | {
      readonly type: 'pushed' | 'present';
      readonly path: StorePath;
      readonly narSize: number;
      readonly fileSize: number;
    }
  | ({ readonly type: 'failed' } & PushFailure)
  /** The origin could not be reached or had no time; it is asked again after `delay` milliseconds. */
  | { readonly type: 'retry'; readonly message: string; readonly delay: number };
