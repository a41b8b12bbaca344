import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The directory of the whole project. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Runs a program that a development dependency brings along, over the whole project. */
export function runTool(name: string, args: readonly string[]): { status: number | null; output: string } {
  const program = join(ROOT, 'node_modules', '.bin', name);
  // The test runner gives every child NODE_OPTIONS that load its hooks, which these do not bear.
  const command = ['-u', 'NODE_OPTIONS', program, ...args];
  const { status, stdout, stderr, error } = spawnSync('env', command, { cwd: ROOT, encoding: 'utf8' });
  return { status, output: error?.message ?? `${stdout}${stderr}`.trim() };
}
