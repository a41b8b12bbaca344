import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Bcache, pushMain, startBcache } from './support/bcache.ts';
import { fetchIntoEmpty } from './support/client-store.ts';
import type { Context, Workload } from './support/context.ts';
import { serveStatic } from './support/nginx.ts';
import { against, inSeconds, spread } from './support/table.ts';

const DUMP = `
n=0
for path; do
  n=$((n + 1))
  nix-store --dump "$path" | zstd -q -3 -T0 -c > "$OUT/$n.nar.zst"
done
`;

/**
 * Pushes a closure to an empty origin, by `nix copy` to a directory and by `nix-store --dump | zstd`, pushes it
 * again with nothing to do, then substitutes it from each of them.
 *
 * @param nginx the program; without it only bcache is measured where nginx would be held against it.
 */
export async function pushAndFetch(
  context: Context,
  workload: Workload,
  nginx: string | undefined,
): Promise<void> {
  const { row, temporary } = context;
  const count = workload.closure.paths.length;
  const files = join(temporary, 'static');
  const { pushed, copied, dumped, bcache } = await push(context, workload, files);
  const compared = [
    ['nix copy', copied],
    ['dump | zstd', dumped],
  ] as const;
  row(`push of ${count} paths: ${against(['bcache', pushed], compared)}`);
  await pushNothing(context, workload, bcache);
  await bcache.stop();
  await fetchAll(context, workload, bcache.state, nginx, files);
}

/** Times the push of a closure to an empty origin, then pushes with nothing to do. */
export async function pushTwice(context: Context, workload: Workload): Promise<void> {
  const { processes, temporary, row } = context;
  const bcache = await startBcache(processes, await mkdtemp(join(temporary, 'state-')));
  const { seconds } = await pushMain(processes, bcache, workload.nix, workload.closure.roots);
  row(`push of ${workload.closure.paths.length} tiny paths, once: bcache ${inSeconds(seconds)}`);
  await pushNothing(context, workload, bcache);
  await bcache.stop();
}

async function push(context: Context, { nix, closure }: Workload, files: string) {
  const { processes, temporary, runs, note } = context;
  const pushed: number[] = [];
  const copied: number[] = [];
  const dumped: number[] = [];
  let last: Bcache | undefined;
  for (let run = 1; run <= runs; run++) {
    if (last !== undefined) {
      await last.stop();
      await rm(last.state, { recursive: true });
    }
    last = await startBcache(processes, await mkdtemp(join(temporary, 'state-')));
    await settle(context);
    pushed.push((await pushMain(processes, last, nix, closure.roots)).seconds);

    await rm(files, { recursive: true, force: true });
    const home = await mkdtemp(join(temporary, 'home-'));
    await settle(context);
    const copy = ['copy', '--to', `file://${files}?compression=zstd`, ...closure.roots];
    const env = { ...nix.env, HOME: home, XDG_CACHE_HOME: join(home, '.cache') };
    copied.push((await processes.measure('nix', copy, env)).seconds);

    const out = join(temporary, 'dumped');
    await mkdir(out);
    await settle(context);
    const dump = ['-euc', DUMP, 'dump', ...closure.paths];
    dumped.push((await processes.measure('sh', dump, { ...nix.env, OUT: out })).seconds);
    await rm(out, { recursive: true });
    note(
      `push ${run}: bcache ${inSeconds(pushed.at(-1)!)}, nix copy ${inSeconds(copied.at(-1)!)}, dump ${inSeconds(dumped.at(-1)!)}`,
    );
  }
  if (last === undefined) throw new Error('no run');
  return { pushed, copied, dumped, bcache: last };
}

async function pushNothing(context: Context, { nix, closure }: Workload, bcache: Bcache): Promise<void> {
  const times: number[] = [];
  for (let run = 1; run <= context.runs; run++) {
    times.push((await pushMain(context.processes, bcache, nix, closure.roots)).seconds);
  }
  const { length } = closure.paths;
  context.row(`push of ${length} paths with nothing to do: bcache ${spread(times)}`);
}

async function fetchAll(
  context: Context,
  { nix, closure }: Workload,
  state: string,
  nginx: string | undefined,
  files: string,
): Promise<void> {
  const { processes, temporary, runs, row, note } = context;
  const web =
    nginx === undefined ? undefined : await serveStatic(processes, nginx, files, join(temporary, 'nginx'));
  const times = new Map<string, number[]>();
  const time = async (name: string, url: string) => {
    const seconds = await fetchIntoEmpty(processes, nix, closure.roots, url, temporary);
    times.set(name, [...(times.get(name) ?? []), seconds]);
    note(`fetch from ${name}: ${inSeconds(seconds)}`);
  };
  const fromNginx = async () => {
    if (web !== undefined) await time('nginx', web.url);
  };
  const fromBcache = async () => {
    await rm(join(state, 'agent'), { recursive: true, force: true });
    const bcache = await startBcache(processes, state);
    await time('origin', bcache.originUrl);
    await time('agent, cold', bcache.agentUrl);
    await time('agent, warm', bcache.agentUrl);
    await bcache.stop();
  };
  // The first to write a closure may find memory and disk in another state than all that follow.
  await (web === undefined ? fromBcache() : fromNginx());
  times.clear();
  note('that one does not count');
  for (let run = 1; run <= runs; run++) {
    const order = [fromNginx, fromBcache];
    for (const measure of run % 2 === 1 ? order : order.reverse()) await measure();
  }
  await web?.stop();
  const plain = times.get('nginx');
  for (const name of ['origin', 'agent, cold', 'agent, warm']) {
    const others = plain === undefined ? [] : [['nginx', plain] as const];
    const text = against([name, times.get(name)!], others);
    row(`fetch of ${closure.paths.length} paths: ${text}`);
  }
}

/** Waits until what was written before is on the disk, so that no measurement pays for another. */
async function settle({ processes }: Context): Promise<void> {
  await processes.measure('sync', [], process.env);
}
