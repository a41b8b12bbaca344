import { COMPRESSIONS, type Compression, EXTENSION } from '../../nix/compression/names.ts';
import { parseSha256Base32, type Sha256 } from '../../nix/hash.ts';
import type { NarInfo } from '../../nix/narinfo.ts';
import { hashPart, parseStorePathHash, type StorePathHash } from '../../nix/store-path.ts';

/**
 * What the agent's NAR addresses say, `<store hash>-<nar hash>.nar<ext>`.
 *
 * The store hash finds the narinfo again upstream though nothing is remembered here; the NAR hash says
 * which bytes were promised. Clients remember such an address for 30 days.
 */
export interface NarName {
  readonly storeHash: StorePathHash;
  readonly narHash: Sha256;
  readonly compression: Compression;
}

const SHAPE = /^([0-9a-z]{32})-([0-9a-z]{52})\.nar(\.[a-z0-9]+)?$/;

/** undefined for anything that {@link formatNarName} cannot have written. */
export function parseNarName(text: string): NarName | undefined {
  const match = SHAPE.exec(text);
  if (match === null) return undefined;
  const compression = COMPRESSIONS.find((name) => EXTENSION[name] === (match[3] ?? ''));
  if (compression === undefined) return undefined;
  try {
    return {
      storeHash: parseStorePathHash(match[1] as string),
      narHash: parseSha256Base32(match[2] as string),
      compression,
    };
  } catch {
    return undefined;
  }
}

export function narNameOf(info: NarInfo): NarName {
  return { storeHash: hashPart(info.path), narHash: info.narHash, compression: info.compression };
}

export function formatNarName(name: NarName): string {
  return `${name.storeHash}-${narFileName(name)}`;
}

/** The file in the local cache: paths with equal contents share it. */
export function narFileName(name: Pick<NarName, 'narHash' | 'compression'>): string {
  return `${name.narHash}.nar${EXTENSION[name.compression]}`;
}
