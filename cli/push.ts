import type { CommandModule } from 'yargs';
import { DEFAULT_LEVEL } from '../agent/push/level.ts';
import { BcacheError } from '../nix/errors.ts';
import { readClientConfig } from './client-config.ts';

interface PushArguments {
  cache: string;
  paths: string[] | undefined;
  jobs: number | undefined;
  level: number | undefined;
}

/** `bcache push <cache> [paths..]`; exits with 1 if any path could not be pushed. */
export const pushCommand: CommandModule<object, PushArguments> = {
  command: 'push <cache> [paths..]',
  describe: 'Push store paths, with all they refer to, to a cache',
  builder: (yargs) =>
    yargs
      .positional('cache', {
        describe: 'Name of the cache',
        type: 'string',
        demandOption: true,
      })
      .positional('paths', {
        describe:
          'Store paths, or links to them such as ./result; without any, they are read from standard input',
        type: 'string',
        array: true,
      })
      .option('jobs', {
        alias: 'j',
        describe: 'Paths to read and compress at once [default: twice the cores, up to 16]',
        type: 'number',
      })
      .option('level', {
        alias: 'l',
        describe: 'Compression, 1 to 19: a higher level sends less and takes more time',
        type: 'number',
        default: DEFAULT_LEVEL,
      })
      .example('$0 push main ./result', 'Push what nix-build made')
      .example('nix-store -qR ./result | $0 push main', 'Push a list of paths'),
  handler: async ({ cache, paths, jobs, level }) => {
    const { runPush } = await import('./run-push.ts');
    const stop = new AbortController();
    const interrupt = () =>
      stop.abort(
        new BcacheError('interrupted', 'the push was interrupted', {
          hint: 'What was pushed stays; push again to go on.',
        }),
      );
    process.once('SIGINT', interrupt);
    process.once('SIGTERM', interrupt);
    try {
      const done = await runPush({
        cache,
        paths: paths ?? [],
        jobs,
        level,
        client: readClientConfig(process.env),
        env: process.env,
        input: process.stdin,
        out: process.stdout,
        err: process.stderr,
        signal: stop.signal,
      });
      if (!done) process.exitCode = 1;
    } finally {
      process.off('SIGINT', interrupt);
      process.off('SIGTERM', interrupt);
    }
  },
};
