import { execFile } from 'node:child_process';
import { access, constants, mkdir, realpath, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { BcacheError } from '../../nix/errors.ts';
import { parseStoreDir, type StoreDir } from '../../nix/store-path.ts';

const execFileAsync = promisify(execFile);

/** Store paths a command line takes at most, well below any system's limit on its length. */
const PATHS_A_COMMAND = 1000;

/** A Nix store, state and configuration below one directory, apart from the machine's own. */
export interface PrivateNix {
  readonly root: string;
  readonly storeDir: StoreDir;
  /** The environment under which every Nix command works on this store. */
  readonly env: NodeJS.ProcessEnv;
}

/** Store paths and everything they refer to; all paths are absolute. */
export interface Closure {
  readonly roots: readonly string[];
  readonly paths: readonly string[];
  /** Sum of the NarSizes, in bytes. */
  readonly narBytes: number;
}

/**
 * Opens the private store below `root`, making it where it is missing.
 *
 * @param root made with its parents; symbolic links are resolved, since Nix refuses a store behind one.
 */
export async function openPrivateNix(root: string): Promise<PrivateNix> {
  await mkdir(root, { recursive: true });
  const real = await realpath(root);
  for (const name of ['store', 'var', 'log', 'etc', 'home'])
    await mkdir(join(real, name), { recursive: true });
  await writeFile(
    join(real, 'etc/nix.conf'),
    'build-users-group =\nsandbox = false\nsubstituters =\nexperimental-features = nix-command\n',
  );
  const storeDir = parseStoreDir(join(real, 'store'));
  const env: NodeJS.ProcessEnv = {
    ...process.env,
    NIX_STORE_DIR: storeDir,
    NIX_STATE_DIR: join(real, 'var'),
    NIX_LOG_DIR: join(real, 'log'),
    NIX_CONF_DIR: join(real, 'etc'),
    NIX_DAEMON_SOCKET_PATH: join(real, 'var/daemon-socket/socket'),
    HOME: join(real, 'home'),
  };
  for (const name of ['NIX_REMOTE', 'NIX_PATH', 'NIX_CONFIG', 'NIX_USER_CONF_FILES']) delete env[name];
  for (const name of ['XDG_CACHE_HOME', 'XDG_CONFIG_HOME', 'XDG_DATA_HOME', 'XDG_STATE_HOME'])
    delete env[name];
  return { root: real, storeDir, env };
}

/**
 * Builds what a Nix expression evaluates to, as many derivations at once as there are cores.
 *
 * @param name of the file the expression is kept in, below the private root.
 * @returns the absolute store paths, in the expression's order.
 */
export async function buildExpression(nix: PrivateNix, name: string, expression: string): Promise<string[]> {
  const file = join(nix.root, `${name}.nix`);
  await writeFile(file, expression);
  const jobs = String(availableParallelism());
  return lines(await run('nix-build', ['--quiet', '--no-out-link', '-j', jobs, file], nix.env));
}

/** Adds files to the store under their own names; returns their absolute store paths in the same order. */
export async function addFiles(nix: PrivateNix, files: readonly string[]): Promise<string[]> {
  return inChunks(files, (chunk) => run('nix-store', ['--add', ...chunk], nix.env));
}

/** The closure of absolute store paths. */
export async function closureOf(nix: PrivateNix, roots: readonly string[]): Promise<Closure> {
  const paths = [
    ...new Set(await inChunks(roots, (chunk) => run('nix-store', ['-q', '-R', ...chunk], nix.env))),
  ];
  const sizes = await inChunks(paths, (chunk) => run('nix-store', ['-q', '--size', ...chunk], nix.env));
  return { roots, paths, narBytes: sizes.reduce((sum, size) => sum + Number(size), 0) };
}

/**
 * Runs a program and returns its standard output.
 *
 * @throws BcacheError `command_failed` with the end of what the program said.
 */
export async function run(
  program: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  cwd?: string,
): Promise<string> {
  try {
    const { stdout } = await execFileAsync(program, args, { env, cwd, maxBuffer: 256 << 20 });
    return stdout;
  } catch (cause) {
    const said = (cause as { stderr?: string }).stderr?.trim() || (cause as Error).message;
    throw new BcacheError('command_failed', `${program} failed: ${said.slice(-2000)}`, { cause });
  }
}

/**
 * The absolute path of a program on PATH.
 *
 * @throws BcacheError `program_missing`
 */
export async function findProgram(name: string): Promise<string> {
  for (const directory of (process.env.PATH ?? '').split(delimiter)) {
    const file = join(directory, name);
    try {
      await access(file, constants.X_OK);
      return file;
    } catch {
      // The next directory may have it.
    }
  }
  throw new BcacheError('program_missing', `there is no ${name} on PATH`);
}

/** `text` as a Nix string literal. */
export function nixString(text: string): string {
  return `"${text.replace(/["\\$]/g, '\\$&')}"`;
}

export function lines(text: string): string[] {
  return text.split('\n').filter((line) => line !== '');
}

async function inChunks(
  items: readonly string[],
  query: (chunk: readonly string[]) => Promise<string>,
): Promise<string[]> {
  const answers: string[] = [];
  for (let at = 0; at < items.length; at += PATHS_A_COMMAND) {
    for (const line of lines(await query(items.slice(at, at + PATHS_A_COMMAND)))) answers.push(line);
  }
  return answers;
}
