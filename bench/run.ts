// Measures bcache against plain Nix on this machine and prints what came out. Only ratios within one run mean
// something elsewhere.
import { mkdir, mkdtemp } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import yargs from 'yargs';
import { BcacheError } from '../nix/errors.ts';
import { largeMemory } from './memory.ts';
import { pushAndFetch, pushTwice } from './push-fetch.ts';
import type { Context } from './support/context.ts';
import { findNginx } from './support/nginx.ts';
import { findProgram } from './support/nix.ts';
import { Processes } from './support/processes.ts';
import { removeTree } from './support/remove-tree.ts';
import { openWorkload } from './support/workload.ts';
import { debianClosure } from './workloads/debian.ts';
import { largeNar, tinyPaths } from './workloads/synthetic.ts';

const options = yargs(process.argv.slice(2))
  .scriptName('npm run bench --')
  .option('dir', {
    describe: 'Directory for the workloads, kept for later runs',
    type: 'string',
    default: join(tmpdir(), `bcache-bench-${process.getuid?.() ?? 'user'}`),
  })
  .option('runs', { describe: 'Measurements of each thing', type: 'number', default: 3 })
  .option('closure', {
    describe: 'Push and fetch a closure of Debian packages; needs apt',
    type: 'boolean',
    default: true,
  })
  .option('tiny', {
    describe: 'Push 5,000 tiny paths with nothing to do',
    type: 'boolean',
    default: true,
  })
  .option('large', {
    describe: 'Push and fetch one NAR of 2 GiB; takes 8 GB of disk',
    type: 'boolean',
    default: true,
  })
  .strict()
  .check(({ runs }) => (Number.isInteger(runs) && runs > 0) || '--runs must be a whole number above 0')
  .parseSync();

const stop = new AbortController();
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(name, () => stop.abort(new BcacheError('interrupted', 'the benchmark was interrupted')));
}

try {
  for (const name of ['nix', 'nix-store', 'zstd']) await findProgram(name);
  const directory = resolve(options.dir);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await measureAll(directory);
} catch (error) {
  process.exitCode = 1;
  const hint = error instanceof BcacheError && error.hint !== undefined ? `\n  ${error.hint}` : '';
  process.stderr.write(
    error instanceof BcacheError ? `bench: ${error.message}${hint}\n` : `${(error as Error).stack}\n`,
  );
}

async function measureAll(directory: string): Promise<void> {
  const processes = new Processes(stop.signal);
  const temporary = await mkdtemp(join(directory, 'run-'));
  const rows: string[] = [];
  const note = (text: string) => process.stderr.write(`${text}\n`);
  const row = (text: string) => {
    rows.push(text);
    note(`→ ${text}`);
  };
  const context: Context = { processes, temporary, runs: options.runs, row, note };
  /** What fails in one part keeps no other from being measured. */
  const part = async (name: string, measure: () => Promise<void>) => {
    note(`${name}: made now, unless kept from an earlier run`);
    try {
      await measure();
    } catch (error) {
      stop.signal.throwIfAborted();
      if (!(error instanceof BcacheError)) throw error;
      process.exitCode = 1;
      row(`${name}: failed: ${error.message}`);
    } finally {
      await processes.stopAll();
    }
  };
  try {
    if (options.closure) {
      await part('the closure of Debian packages', async () => {
        const debian = await openWorkload(join(directory, 'debian'), (nix) =>
          debianClosure(nix, { cache: join(directory, 'packages') }),
        );
        const nginx = await findNginx();
        if (nginx === undefined) row('nginx is not installed: what is held against it is skipped');
        await pushAndFetch(context, debian, nginx);
      });
    }
    if (options.tiny) {
      await part('5,000 tiny paths', async () =>
        pushTwice(context, await openWorkload(join(directory, 'tiny'), (nix) => tinyPaths(nix))),
      );
    }
    if (options.large) {
      await part('one NAR of 2 GiB', async () =>
        largeMemory(context, await openWorkload(join(directory, 'large'), (nix) => largeNar(nix))),
      );
    }
  } finally {
    await processes.stopAll();
    await removeTree(temporary);
  }
  const machine = `${availableParallelism()} cores, Node ${process.version}`;
  process.stdout.write(`\nmedians of ${options.runs} runs [least–most], ${machine}\n\n${rows.join('\n')}\n`);
}
