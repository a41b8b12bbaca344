import { join } from 'node:path';
import type { CommandModule } from 'yargs';
import { BcacheError } from '../nix/errors.ts';
import { portFrom } from './ports.ts';
import { runUntilSignal } from './run-until-signal.ts';
import { stateDir } from './state.ts';

interface AgentArguments {
  config: string | undefined;
  state: string | undefined;
  host: string | undefined;
  port: number | undefined;
  upstream: string[] | undefined;
  key: string[] | undefined;
}

/** `bcache agent`: runs the agent until it gets a signal. */
export const agentCommand: CommandModule<object, AgentArguments> = {
  command: 'agent',
  describe: 'Run the agent: the substituter on this machine, which keeps what it fetched',
  builder: (yargs) =>
    yargs
      .option('config', {
        describe: 'Configuration file (TOML), tables [agent] and [[agent.upstream]]',
        type: 'string',
      })
      .option('state', {
        describe: 'Directory for what is kept [default: $BCACHE_STATE/agent]',
        type: 'string',
      })
      .option('host', { describe: 'Address to listen on [default: 127.0.0.1]', type: 'string' })
      .option('port', { describe: 'Port [default: $BCACHE_AGENT_PORT or 8471]', type: 'number' })
      .option('upstream', {
        describe: 'Address of a cache to fetch from; may be repeated',
        type: 'string',
        array: true,
      })
      .option('key', {
        describe: 'Public key to trust for the upstreams given here',
        type: 'string',
        array: true,
      }),
  handler: async (args) => {
    // Loaded when it runs: each command carries its own part alone, which keeps it small and quick to start.
    const { startAgent } = await import('../agent/agent.ts');
    const { readConfig } = await import('./config.ts');
    const { agent = {} } = readConfig(args.config);
    const upstreams = [
      ...(args.upstream ?? []).map((url) => ({ url, publicKeys: args.key ?? [] })),
      ...(agent.upstream ?? []).map(({ url, public_keys, priority }) => ({
        url,
        publicKeys: public_keys,
        ...(priority === undefined ? {} : { priority }),
      })),
    ];
    if (upstreams.length === 0) {
      throw new BcacheError('no_upstream', 'the agent has no cache to fetch from', {
        hint: 'Name one: bcache agent --upstream http://host:8470/main --key main-1:…',
      });
    }
    const { createLogger } = await import('./logger.ts');
    const logger = createLogger(process.env);
    const running = await startAgent({
      stateDir: args.state ?? agent.state_dir ?? join(stateDir(process.env), 'agent'),
      host: args.host ?? agent.host ?? '127.0.0.1',
      port: args.port ?? agent.port ?? portFrom(process.env, 'BCACHE_AGENT_PORT') ?? 8471,
      upstreams,
      ...(agent.cache_bytes === undefined ? {} : { cacheBytes: agent.cache_bytes }),
      logger,
    });
    await runUntilSignal(running, logger);
  },
};
