import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { flushCompileCache } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { CommandModule } from 'yargs';
import { BcacheError } from '../nix/errors.ts';
import type { FirstCache } from './first-cache.ts';
import { portFrom } from './ports.ts';
import { stateDir } from './state.ts';

const PROGRAM = fileURLToPath(new URL('bcache.ts', import.meta.url));
const START_TIMEOUT_MS = 30_000;

/** `bcache start`, which is `npm start`: origin and agent side by side, for trying out and for one machine. */
export const startCommand: CommandModule<object, object> = {
  command: 'start',
  describe: 'Run an origin and an agent on this machine, with a first cache, and say what to do next',
  handler: async () => {
    const { ensureFirstCache } = await import('./first-cache.ts');
    const { env } = process;
    const state = stateDir(env);
    const originState = join(state, 'origin');
    const originPort = portFrom(env, 'BCACHE_ORIGIN_PORT') ?? 8470;
    const agentPort = portFrom(env, 'BCACHE_AGENT_PORT') ?? 8471;
    const originUrl = `http://127.0.0.1:${originPort}`;
    const agentUrl = `http://127.0.0.1:${agentPort}`;
    await compileAll();
    const first = await ensureFirstCache(state, originState, originUrl);
    const children = [
      startChild(['serve', '--state', originState, '--port', String(originPort)]),
      startChild([
        ...['agent', '--state', join(state, 'agent'), '--port', String(agentPort)],
        ...['--upstream', `${originUrl}/${first.name}`, '--key', first.publicKey],
      ]),
    ];
    const stop = new AbortController();
    process.once('SIGINT', () => stop.abort());
    process.once('SIGTERM', () => stop.abort());
    const ended = Promise.race(children.map((child) => once(child, 'exit')));
    try {
      await Promise.race([
        Promise.all([
          answers(`${originUrl}/${first.name}/nix-cache-info`),
          answers(`${agentUrl}/nix-cache-info`),
        ]),
        ended.then(() => {
          throw new BcacheError(
            'start_failed',
            'a part of bcache ended while it started: its message is above',
          );
        }),
        once(stop.signal, 'abort'),
      ]);
      if (!stop.signal.aborted) {
        process.stdout.write(nextSteps(first, originUrl, agentUrl));
        await Promise.race([once(stop.signal, 'abort'), ended]);
      }
      if (!stop.signal.aborted) {
        throw new BcacheError('part_ended', 'a part of bcache ended on its own: its message is above');
      }
    } finally {
      await Promise.all(children.map(stopChild));
    }
  },
};

/**
 * Leaves the compiled code of all roles in the cache for the processes that follow. Each that had to strip the
 * types itself, in every thread, would stay some 40 MB larger for as long as it runs.
 */
async function compileAll(): Promise<void> {
  await import('../server/origin.ts');
  await import('../server/ingest/verify-worker.ts');
  await import('../agent/agent.ts');
  await import('../nix/nar/write.ts');
  await import('./run-push.ts');
  flushCompileCache();
}

function startChild(args: readonly string[]): ChildProcess {
  // Ctrl-C at a terminal reaches them as well; they stop at the first signal and ignore the next.
  return spawn(process.execPath, [...process.execArgv, PROGRAM, ...args], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { BCACHE_LOG_LEVEL: 'warn', ...process.env },
  });
}

async function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGTERM');
  await once(child, 'exit');
}

async function answers(url: string): Promise<void> {
  const end = Date.now() + START_TIMEOUT_MS;
  for (;;) {
    try {
      if ((await fetch(url)).ok) return;
    } catch {
      // Not listening yet.
    }
    if (Date.now() > end) {
      throw new BcacheError('start_failed', `${url} does not answer`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function nextSteps({ name, publicKey, newToken }: FirstCache, originUrl: string, agentUrl: string): string {
  const token =
    newToken === undefined
      ? 'Pushing from this checkout needs no token; elsewhere it is the one shown at the first start.'
      : `Pushing from this checkout needs no token. Elsewhere (shown once):\n\n  export BCACHE_ORIGIN_URL=${originUrl} BCACHE_AUTH_TOKEN=${newToken}`;
  return `bcache runs: origin ${originUrl}, agent ${agentUrl}

Let Nix use it: add to /etc/nix/nix.conf, then restart nix-daemon if you have one:

  extra-substituters = ${agentUrl}
  extra-trusted-public-keys = ${publicKey}
  narinfo-cache-negative-ttl = 0

Push what you built, with all it refers to:

  npx bcache push ${name} ./result

Fetch it, here or where the agent runs:

  nix-store -r /nix/store/<path> --option substituters ${agentUrl} --option trusted-public-keys ${publicKey}

${token}

Ctrl-C stops both.
`;
}
