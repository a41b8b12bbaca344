import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { pushMain, startBcache } from './support/bcache.ts';
import { fetchIntoEmpty } from './support/client-store.ts';
import type { Context, Workload } from './support/context.ts';
import { inSeconds } from './support/table.ts';

/** Pushes one large NAR and fetches it through the agent; tells what memory each process had at its peak. */
export async function largeMemory(context: Context, { nix, closure }: Workload): Promise<void> {
  const { processes, temporary, row } = context;
  const bcache = await startBcache(processes, await mkdtemp(join(temporary, 'state-')));
  const idle = await bcache.peaks();
  const client = await pushMain(processes, bcache, nix, closure.roots);
  const pushed = await bcache.peaks();
  const fetched = await fetchIntoEmpty(processes, nix, closure.roots, bcache.agentUrl, temporary);
  const done = await bcache.peaks();
  await bcache.stop();
  const size = `${(closure.narBytes / 2 ** 30).toFixed(1)} GiB`;
  row(`one NAR of ${size}: push ${inSeconds(client.seconds)}, fetch by the agent ${inSeconds(fetched)}`);
  row(`peak memory, push: client ${mib(client.peakMiB)}, origin ${mib(pushed.origin)}`);
  row(`peak memory, push and fetch: origin ${mib(done.origin)}, agent ${mib(done.agent)}`);
  row(`peak memory before: origin ${mib(idle.origin)}, agent ${mib(idle.agent)}`);
}

function mib(value: number): string {
  return `${Math.round(value)} MiB`;
}
