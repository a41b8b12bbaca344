import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Workload } from './context.ts';
import { type Closure, openPrivateNix, type PrivateNix } from './nix.ts';

/** The workload kept below `directory` from an earlier run, else made there by `make`. */
export async function openWorkload(
  directory: string,
  make: (nix: PrivateNix) => Promise<Closure>,
): Promise<Workload> {
  const nix = await openPrivateNix(directory);
  const file = join(nix.root, 'closure.json');
  if (existsSync(file)) {
    return { nix, closure: JSON.parse(await readFile(file, 'utf8')) as Closure };
  }
  const closure = await make(nix);
  await writeFile(file, JSON.stringify(closure));
  return { nix, closure };
}
