import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';

/** Removes a directory that may hold store paths, from which Nix took the write permission. */
export async function removeTree(directory: string): Promise<void> {
  if (!existsSync(directory)) return;
  await once(spawn('chmod', ['-R', 'u+w', directory], { detached: true, stdio: 'ignore' }), 'exit');
  await rm(directory, { recursive: true, force: true });
}
