import { readFileSync } from 'node:fs';
import yargs from 'yargs';
import { BcacheError } from '../nix/errors.ts';
import { agentCommand } from './agent.ts';
import { pushCommand } from './push.ts';
import { serveCommand } from './serve.ts';
import { startCommand } from './start.ts';

/** Runs one command; sets the exit code: 1 where it failed, 2 where it was called wrongly. */
export async function main(args: readonly string[]): Promise<void> {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  const parser = yargs()
    .scriptName('bcache')
    .usage('$0 <command>: a binary cache for Nix')
    .command(startCommand)
    .command(serveCommand)
    .command(agentCommand)
    .command(pushCommand)
    .demandCommand(1, 'name a command')
    .strict()
    .version(version)
    .alias('h', 'help')
    .wrap(Math.min(100, process.stdout.columns ?? 80))
    .exitProcess(false)
    .fail((message, error) => {
      throw error ?? new BcacheError('usage', message, { hint: "See 'bcache --help'." });
    });
  try {
    await parser.parseAsync([...args]);
  } catch (error) {
    process.exitCode = error instanceof BcacheError && error.code === 'usage' ? 2 : 1;
    process.stderr.write(describe(error));
  }
}

function describe(error: unknown): string {
  if (error instanceof BcacheError) {
    return `bcache: ${error.message}\n${error.hint === undefined ? '' : `  ${error.hint}\n`}`;
  }
  return `bcache: unexpected failure: ${error instanceof Error ? error.stack : String(error)}\n`;
}
