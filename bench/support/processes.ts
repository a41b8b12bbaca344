import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { BcacheError } from '../../nix/errors.ts';

const START_TIMEOUT_MS = 30_000;
const SAMPLE_MS = 20;

export interface Spent {
  readonly seconds: number;
  /** Peak resident memory of the process itself, without its children, in MiB. */
  readonly peakMiB: number;
  readonly stdout: string;
}

/**
 * The child processes of a benchmark. Each leads a process group of its own, so that what it started ends with
 * it, and a Ctrl-C at the terminal reaches the benchmark alone.
 */
export class Processes {
  readonly #signal: AbortSignal;
  readonly #running = new Set<ChildProcess>();

  /** @param signal ends the commands that run, and lets none begin. */
  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  /** Starts a program that runs until {@link stop}; `stdout` is a pipe, what it says on stderr goes to ours. */
  start(program: string, args: readonly string[], env: NodeJS.ProcessEnv): ChildProcess {
    return this.#spawn(program, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  }

  /**
   * Runs a program to its end and tells what it took.
   *
   * @throws BcacheError `command_failed` with the last line of what it said.
   */
  async measure(program: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<Spent> {
    const started = performance.now();
    const child = this.#spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    const stop = () => signalGroup(child, 'SIGTERM');
    this.#signal.addEventListener('abort', stop, { once: true });
    let stdout = '';
    let stderr = '';
    child.stdout?.on('data', (chunk) => {
      stdout = (stdout + chunk).slice(-100_000);
    });
    child.stderr?.on('data', (chunk) => {
      stderr = (stderr + chunk).slice(-500);
    });
    let ended = false;
    const exit = once(child, 'close').finally(() => {
      ended = true;
    });
    let peakMiB = 0;
    const sample = async () => {
      // The kernel keeps the peak, so that only what comes after the last look is missed.
      while (!ended) {
        peakMiB = (await peakMemory(child.pid)) ?? peakMiB;
        await Promise.race([exit.catch(() => {}), delay(SAMPLE_MS)]);
      }
    };
    const [[code, signal]] = await Promise.all([exit, sample()]);
    const seconds = (performance.now() - started) / 1000;
    this.#signal.removeEventListener('abort', stop);
    this.#signal.throwIfAborted();
    if (code !== 0) {
      throw new BcacheError(
        'command_failed',
        `${program} ended with ${signal ?? code}: ${stderr.trim().split('\n').at(-1)}`,
      );
    }
    return { seconds, peakMiB, stdout };
  }

  /** Ends a program with all it started; resolved when it has ended. */
  async stop(child: ChildProcess): Promise<void> {
    if (!this.#running.has(child)) return;
    const exit = once(child, 'exit');
    signalGroup(child, 'SIGTERM');
    const force = setTimeout(() => signalGroup(child, 'SIGKILL'), 10_000);
    await exit;
    clearTimeout(force);
  }

  async stopAll(): Promise<void> {
    await Promise.all([...this.#running].map((child) => this.stop(child)));
  }

  #spawn(program: string, args: readonly string[], options: SpawnOptions): ChildProcess {
    this.#signal.throwIfAborted();
    const child = spawn(program, args, { ...options, detached: true });
    this.#running.add(child);
    const forget = () => this.#running.delete(child);
    child.once('exit', forget).once('error', forget);
    return child;
  }
}

/** The most memory a running process has had resident, in MiB; undefined once it has ended. */
export async function peakMemory(pid: number | undefined): Promise<number | undefined> {
  try {
    const match = /^VmHWM:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'));
    return match === null ? undefined : Number(match[1]) / 1024;
  } catch {
    return undefined;
  }
}

/** A TCP port nothing listens on now. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}

/** Resolved when an HTTP server answers. @throws BcacheError `start_failed` */
export async function untilAnswers(url: string, child: ChildProcess): Promise<void> {
  const end = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < end && child.exitCode === null && child.signalCode === null) {
    try {
      if ((await fetch(url)).ok) return;
    } catch {
      // Not listening yet.
    }
    await delay(20);
  }
  throw new BcacheError('start_failed', `${url} does not answer`);
}

function signalGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch {
    // It has ended.
  }
}
