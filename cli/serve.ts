import { join } from 'node:path';
import type { CommandModule } from 'yargs';
import { portFrom } from './ports.ts';
import { runUntilSignal } from './run-until-signal.ts';
import { stateDir } from './state.ts';

interface ServeArguments {
  config: string | undefined;
  state: string | undefined;
  host: string | undefined;
  port: number | undefined;
  domain: string | undefined;
}

/** `bcache serve`: runs the origin until it gets a signal. */
export const serveCommand: CommandModule<object, ServeArguments> = {
  command: 'serve',
  describe: 'Run the origin: it holds the caches, verifies and signs what is pushed, and serves it to Nix',
  builder: (yargs) =>
    yargs
      .option('config', { describe: 'Configuration file (TOML), table [server]', type: 'string' })
      .option('state', {
        describe: 'Directory for catalogue and NARs [default: $BCACHE_STATE/origin]',
        type: 'string',
      })
      .option('host', { describe: 'Address to listen on [default: 127.0.0.1]', type: 'string' })
      .option('port', { describe: 'Port [default: $BCACHE_ORIGIN_PORT or 8470]', type: 'number' })
      .option('domain', {
        describe: 'Serve caches also at http://<cache>.<domain> [default: localhost]',
        type: 'string',
      }),
  handler: async (args) => {
    // Loaded when it runs: each command carries its own part alone, which keeps it small and quick to start.
    const { startOrigin } = await import('../server/origin.ts');
    const { readConfig } = await import('./config.ts');
    const { server = {} } = readConfig(args.config);
    const { createLogger } = await import('./logger.ts');
    const logger = createLogger(process.env);
    const origin = await startOrigin({
      stateDir: args.state ?? server.state_dir ?? join(stateDir(process.env), 'origin'),
      host: args.host ?? server.host ?? '127.0.0.1',
      port: args.port ?? server.port ?? portFrom(process.env, 'BCACHE_ORIGIN_PORT') ?? 8470,
      domain: args.domain ?? server.domain ?? 'localhost',
      logger,
    });
    await runUntilSignal(origin, logger);
  },
};
