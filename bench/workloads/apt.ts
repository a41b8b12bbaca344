import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { BcacheError } from '../../nix/errors.ts';
import { findProgram, lines, run } from '../support/nix.ts';

/** A Debian package on this disk. */
export interface DebPackage {
  readonly name: string;
  readonly version: string;
  /** Absolute path of the .deb file. */
  readonly file: string;
  /** Names of other packages; following them never leads back. */
  readonly dependencies: readonly string[];
}

/** For each package its dependencies; each of these is a list of packages that would do, the best first. */
export type Alternatives = ReadonlyMap<string, readonly (readonly string[])[]>;

const DEPENDS_ONLY = ['recommends', 'suggests', 'conflicts', 'breaks', 'replaces', 'enhances'].map(
  (kind) => `--no-${kind}`,
);

/**
 * Resolves and downloads packages with all they depend on. Files already in `cache` are used again.
 *
 * @param roots `name` or `name=version`.
 * @param release prefers this release's versions (`bookworm`, `bookworm-security`) for every package;
 *   undefined takes the newest.
 * @throws BcacheError `command_failed` for unknown packages, `program_missing` without apt.
 */
export async function fetchPackages(
  roots: readonly string[],
  cache: string,
  release?: string,
): Promise<DebPackage[]> {
  await findProgram('apt-get');
  await mkdir(cache, { recursive: true });
  const env = { ...process.env, LC_ALL: 'C' };
  // What is installed here must not sway the choice, or the closure would differ between machines.
  const options = ['-o', 'Dir::State::status=/dev/null', '-o', 'APT::Sandbox::User=root'];
  if (release !== undefined) options.push('-o', `APT::Default-Release=${release}`);

  const depends = ['depends', '--recurse', '--important', ...DEPENDS_ONLY, ...options, ...roots];
  const alternatives = parseDepends(await run('apt-cache', depends, env));
  const order = orderPackages(
    roots.map((root) => root.split('=', 1)[0]!),
    alternatives,
  );

  const chosen = new Map(roots.map((root) => [root.split('=', 1)[0]!, root]));
  const specs = [...order.keys()].map((name) => chosen.get(name) ?? name);
  const planned = parseUris(await run('apt-get', ['download', '--print-uris', ...options, ...specs], env));
  // apt-get checks a file that is there by its hash and fetches it only where that fails.
  await run('apt-get', ['download', '--quiet=2', ...options, ...specs], env, cache);

  return [...order].map(([name, dependencies]) => {
    const file = planned.get(name);
    if (file === undefined) {
      throw new BcacheError('no_package', `apt offers no file for ${name}`, { hint: 'Run apt-get update.' });
    }
    const version = decodeURIComponent(file.split('_')[1]!);
    return { name, version, file: join(cache, file), dependencies };
  });
}

/**
 * Reads what `apt-cache depends` prints: a package at the line's begin, its dependencies indented by two, those
 * that go together as alternatives marked `|` but for the last, and below each the packages that provide it.
 * Relations other than dependencies must have been left out.
 */
export function parseDepends(text: string): Alternatives {
  const packages = new Map<string, string[][]>();
  let groups: string[][] = [];
  let continued = false;
  for (const line of lines(text)) {
    const dependency = /^ ([ |])(?:Pre)?Depends: (\S+)$/.exec(line);
    if (dependency !== null) {
      if (!continued) groups.push([]);
      continued = dependency[1] === '|';
      if (!isVirtual(dependency[2]!)) groups.at(-1)!.push(dependency[2]!);
    } else if (line.startsWith('    ')) {
      groups.at(-1)?.push(line.trim());
    } else if (!line.startsWith(' ')) {
      groups = [];
      if (!isVirtual(line)) packages.set(line, groups);
    }
  }
  return packages;
}

/**
 * The packages reached from `roots`, dependencies first. Debian allows packages to depend on each other in a
 * circle, store paths cannot: a dependency that closes a circle is left out.
 */
export function orderPackages(
  roots: readonly string[],
  alternatives: Alternatives,
): ReadonlyMap<string, readonly string[]> {
  const done = new Map<string, string[]>();
  const open = new Set<string>();
  const visit = (name: string): void => {
    open.add(name);
    const kept = new Set<string>();
    for (const group of alternatives.get(name) ?? []) {
      const best = group.find((candidate) => alternatives.has(candidate));
      if (best === undefined || open.has(best)) continue;
      if (!done.has(best)) visit(best);
      kept.add(best);
    }
    open.delete(name);
    done.set(name, [...kept]);
  };
  for (const root of roots) if (!done.has(root)) visit(root);
  return done;
}

/** From `apt-get download --print-uris` (`'uri' file size hash` a line): package name → file name. */
function parseUris(text: string): Map<string, string> {
  const files = lines(text).flatMap((line) => /^'[^']*' (\S+) \d+/.exec(line)?.[1] ?? []);
  return new Map(files.map((file) => [file.split('_', 1)[0]!, file]));
}

/** apt-cache writes names no package has, only provides, in angle brackets. */
function isVirtual(name: string): boolean {
  return name.startsWith('<');
}
