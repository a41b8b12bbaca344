import type { Closure, PrivateNix } from './nix.ts';
import type { Processes } from './processes.ts';

/** What every part of the benchmark gets. */
export interface Context {
  readonly processes: Processes;
  /** A directory of this run's own, removed at its end. */
  readonly temporary: string;
  /** How often each thing is measured. */
  readonly runs: number;
  /** Prints one line of the table. */
  readonly row: (text: string) => void;
  /** Says what goes on. */
  readonly note: (text: string) => void;
}

/** A closure and the store it is in. */
export interface Workload {
  readonly nix: PrivateNix;
  readonly closure: Closure;
}
