import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The directory of the whole project. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Runs a program that a development dependency brings along, over the whole project. */
export function runTool(name: string, args: readonly string[]): { status: number | null; output: string } {
  const program = join(ROOT, 'node_modules', '.bin', name);
  // What the test runner loads into every Node of its own does not belong in these.
  const env = { ...process.env, NODE_OPTIONS: '' };
  const { status, stdout, stderr, error } = spawnSync(program, args, { cwd: ROOT, env, encoding: 'utf8' });
  return { status, output: error?.message ?? `${stdout}${stderr}`.trim() };
}
