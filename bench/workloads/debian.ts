import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import {
  buildExpression,
  type Closure,
  closureOf,
  findProgram,
  nixString,
  type PrivateNix,
} from '../support/nix.ts';
import { type DebPackage, fetchPackages } from './apt.ts';

/** About 150 packages of every size: compilers, interpreters, servers, manuals, many small libraries. */
export const DEBIAN_ROOTS: readonly string[] = ['git', 'g++', 'python3', 'vim', 'nginx', 'curl', 'gdb'];

export interface DebianOptions {
  /** `name` or `name=version`; {@link DEBIAN_ROOTS} if not given. */
  readonly roots?: readonly string[] | undefined;
  /**
   * Takes each package in this release's version where it has one, else the newest. Closures of the same roots
   * in `bookworm` and in `bookworm-security` are two generations of one system.
   */
  readonly release?: string | undefined;
  /** Folder for downloaded packages, kept for later runs. */
  readonly cache?: string | undefined;
}

/**
 * A real closure: Debian packages and all they depend on, one store path each, with Debian's dependencies as
 * references. Needs apt with fetched package lists; the first run downloads about 130 MB.
 *
 * @throws BcacheError `program_missing`, `command_failed`, `no_package`.
 */
export async function debianClosure(nix: PrivateNix, options: DebianOptions = {}): Promise<Closure> {
  const roots = options.roots ?? DEBIAN_ROOTS;
  const packages = await fetchPackages(roots, options.cache ?? defaultCache(), options.release);
  return packageClosure(
    nix,
    packages,
    roots.map((root) => root.split('=', 1)[0]!),
  );
}

/** Makes store paths of Debian packages that lie on this disk, the closure of those named by `roots`. */
export async function packageClosure(
  nix: PrivateNix,
  packages: readonly DebPackage[],
  roots: readonly string[],
): Promise<Closure> {
  const expression = debianExpression(packages, roots, await findProgram('dpkg-deb'));
  return closureOf(nix, await buildExpression(nix, 'debian', expression));
}

// Inside a build Nix forbids setting setuid bits, which `dpkg-deb -x` would; in a store path it refuses devices.
const UNPACK = `
mkdir "$out"
"$dpkgDeb" --fsys-tarfile "$deb" > data.tar
tar -x -f data.tar -C "$out" --no-same-owner --no-same-permissions
chmod -R u+w "$out"
find "$out" ! -type f ! -type d ! -type l -delete
mkdir -p "$out/nix-support"
echo "$dependencies" > "$out/nix-support/propagated-build-inputs"
`;

function debianExpression(
  packages: readonly DebPackage[],
  roots: readonly string[],
  dpkgDeb: string,
): string {
  const select = (name: string) => `packages.${nixString(name)}`;
  const entries = packages.map(({ name, version, file, dependencies }) => {
    const storeName = nixString(`${name}-${version}`.replace(/[^0-9A-Za-z+\-._?=]/g, '-'));
    return `    ${nixString(name)} = unpack ${storeName} ${nixString(file)} [ ${dependencies.map(select).join(' ')} ];`;
  });
  return `let
  unpack = name: file: dependencies: derivation {
    inherit name dependencies;
    deb = builtins.path { path = file; name = "\${name}.deb"; };
    dpkgDeb = ${nixString(dpkgDeb)};
    PATH = ${nixString(`${dirname(dpkgDeb)}:/usr/bin:/bin`)};
    system = builtins.currentSystem;
    builder = "/bin/sh";
    args = [ "-euc" ${nixString(UNPACK)} ];
  };
  packages = {
${entries.join('\n')}
  };
in [ ${roots.map(select).join(' ')} ]
`;
}

function defaultCache(): string {
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'bcache-bench/debian');
}
