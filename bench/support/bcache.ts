import type { ChildProcess } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BcacheError } from '../../nix/errors.ts';
import type { PrivateNix } from './nix.ts';
import { freePort, type Processes, peakMemory, type Spent } from './processes.ts';

const PROGRAM = fileURLToPath(new URL('../../cli/bcache.ts', import.meta.url));
const ARGS = ['--max-semi-space-size=1', PROGRAM];
const OWN_SETTINGS = /^(BCACHE_|NODE_OPTIONS$|NODE_COMPILE_CACHE$)/;

/** `bcache start` as it is used: origin and agent as processes of their own, with a cache `main`. */
export interface Bcache {
  readonly state: string;
  /** The cache at the origin, as a substituter. */
  readonly originUrl: string;
  readonly agentUrl: string;
  /** Peak resident memory so far, in MiB. */
  peaks(): Promise<{ readonly origin: number; readonly agent: number }>;
  stop(): Promise<void>;
}

/** @param state directory for all it keeps; one that was used before is used again. */
export async function startBcache(processes: Processes, state: string): Promise<Bcache> {
  const origin = await freePort();
  const agent = await freePort();
  const env = clientEnv(process.env, state);
  const child = processes.start(process.execPath, [...ARGS, 'start'], {
    ...env,
    BCACHE_ORIGIN_PORT: String(origin),
    BCACHE_AGENT_PORT: String(agent),
  });
  await untilSays(child, 'bcache runs');
  const parts = await partsOf(child);
  const peakOf = async (part: string) => (await peakMemory(parts.get(part))) ?? Number.NaN;
  return {
    state,
    originUrl: `http://127.0.0.1:${origin}/main`,
    agentUrl: `http://127.0.0.1:${agent}`,
    peaks: async () => ({ origin: await peakOf('serve'), agent: await peakOf('agent') }),
    stop: () => processes.stop(child),
  };
}

/** `bcache push main` of paths in `nix`, as a process. */
export function pushMain(
  processes: Processes,
  bcache: Bcache,
  nix: PrivateNix,
  roots: readonly string[],
): Promise<Spent> {
  const env = clientEnv(nix.env, bcache.state);
  return processes.measure(process.execPath, [...ARGS, 'push', 'main', ...roots], env);
}

function clientEnv(base: NodeJS.ProcessEnv, state: string): NodeJS.ProcessEnv {
  const kept = Object.entries(base).filter(([name]) => !OWN_SETTINGS.test(name));
  // Compiled code is kept beside the states, not inside: an installed bcache has it from its last run.
  return {
    ...Object.fromEntries(kept),
    BCACHE_STATE: state,
    NODE_COMPILE_CACHE: join(state, '../compiled'),
  };
}

async function untilSays(child: ChildProcess, words: string): Promise<void> {
  let said = '';
  for await (const chunk of child.stdout?.iterator({ destroyOnReturn: false }) ?? []) {
    said += chunk;
    if (!said.includes(words)) continue;
    child.stdout?.resume();
    return;
  }
  throw new BcacheError('start_failed', 'bcache start ended before it ran: its message is above');
}

/** The processes `bcache start` runs: command → process id. */
async function partsOf(child: ChildProcess): Promise<ReadonlyMap<string, number>> {
  const parts = new Map<string, number>();
  const children = await readFile(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8');
  for (const pid of children.trim().split(' ')) {
    const args = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0');
    const command = args[args.indexOf(PROGRAM) + 1];
    if (command !== undefined) parts.set(command, Number(pid));
  }
  return parts;
}
