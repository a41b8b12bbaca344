import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The directory of the whole project. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A program that a development dependency brings along. */
export function tool(name: string): string {
  return join(ROOT, 'node_modules', '.bin', name);
}
