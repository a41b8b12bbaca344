import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BcacheError } from '../../nix/errors.ts';
import {
  addFiles,
  buildExpression,
  type Closure,
  closureOf,
  nixString,
  type PrivateNix,
} from '../support/nix.ts';
import { Noise } from './noise.ts';

/** Bytes a NAR with one file and nothing else has around the file's content, that being a multiple of 8. */
const NAR_FRAME = 112;

/**
 * A closure of exactly `count` store paths (10 to 10,000), each under 10 kB: files of text, groups that refer to
 * them, and one root that refers to the groups. The files are content-addressed, groups and root are not.
 */
export async function tinyPaths(nix: PrivateNix, count = 5000, seed = 'tiny'): Promise<Closure> {
  requireWhole('count', count, 10, 10_000);
  // As many groups as files in each keeps every list of references short.
  const groupCount = Math.ceil(Math.sqrt(count));
  const files = await addTexts(nix, count - groupCount - 1, seed);
  const groups = Array.from({ length: groupCount }, (_, group) => {
    const members = files.filter((_, index) => index % groupCount === group);
    return `(list "tiny-group-${group}" [ ${members.map((file) => `(builtins.storePath ${nixString(file)})`).join(' ')} ])`;
  });
  const expression = `let
  list = name: members: derivation {
    inherit name members;
    system = builtins.currentSystem;
    builder = "/bin/sh";
    args = [ "-euc" "echo \\"$members\\" > \\"$out\\"" ];
  };
in list "tiny-root" [
  ${groups.join('\n  ')}
]
`;
  return closureOf(nix, await buildExpression(nix, 'tiny', expression));
}

/**
 * One store path, a file whose NAR has exactly `bytes` bytes (a multiple of 8, 1 KiB or more). Half of it
 * compresses as text does, half not at all.
 */
export async function largeNar(nix: PrivateNix, bytes = 2 * 2 ** 30, seed = 'large'): Promise<Closure> {
  requireWhole('bytes', bytes, 1024, 2 ** 40);
  if (bytes % 8 !== 0) throw new BcacheError('bad_option', `bytes must be a multiple of 8, ${bytes} is not`);
  const expression = `derivation {
  name = "large-${bytes}";
  system = builtins.currentSystem;
  builder = "/bin/sh";
  node = ${nixString(process.execPath)};
  generator = ${nixString(fileURLToPath(new URL('write-noise.ts', import.meta.url)))};
  bytes = "${bytes - NAR_FRAME}";
  seed = ${nixString(seed)};
  args = [ "-euc" "exec \\"$node\\" \\"$generator\\" \\"$bytes\\" \\"$seed\\" > \\"$out\\"" ];
}
`;
  return closureOf(nix, await buildExpression(nix, 'large', expression));
}

/** Adds text files of 100 to 8,000 bytes to the store. */
async function addTexts(nix: PrivateNix, count: number, seed: string): Promise<string[]> {
  const noise = new Noise(seed);
  const folder = await mkdtemp(join(tmpdir(), 'bcache-tiny-'));
  try {
    const names = Array.from({ length: count }, (_, index) => join(folder, `tiny-${index}`));
    for (const name of names) {
      await writeFile(name, noise.text(100 + (noise.random(2).readUInt16LE() % 7901)));
    }
    return await addFiles(nix, names);
  } finally {
    await rm(folder, { recursive: true });
  }
}

function requireWhole(name: string, value: number, least: number, most: number): void {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  throw new BcacheError(
    'bad_option',
    `${name} must be a whole number from ${least} to ${most}, not ${value}`,
  );
}
