import { checkContentAddress, parseContentAddress } from '../../nix/content-address.ts';
import { FormatError } from '../../nix/errors.ts';
import { verifyAny } from '../../nix/keys.ts';
import { fingerprint, type NarInfo, type PathInfo, parseNarInfo } from '../../nix/narinfo.ts';
import { hashPart, type StorePathHash } from '../../nix/store-path.ts';
import type { Upstream } from './upstream.ts';

/**
 * The narinfo that `upstream` answered with, if it may be believed: well formed, about the path asked
 * for, and either signed by a key that this upstream is trusted with or of a path that its content proves.
 *
 * @throws FormatError with the reason where it may not
 */
export function acceptNarInfo(text: string, hash: StorePathHash, upstream: Upstream): NarInfo {
  const info = parseNarInfo(text);
  if (hashPart(info.path) !== hash) {
    throw new FormatError('other_path', `the narinfo is about another path, ${info.path}`);
  }
  if (
    !verifyAny(upstream.trusted, fingerprint(info), info.signatures) &&
    provingAddress(info) === undefined
  ) {
    throw new FormatError('untrusted', `${info.path} has no valid signature by a key of this upstream`);
  }
  return info;
}

/**
 * The content address that the path follows from, so that the NAR can prove it without a signature;
 * undefined where there is none, or none that can be computed from the NAR. Whoever takes the NAR checks it.
 */
export function provingAddress(info: PathInfo): string | undefined {
  if (info.ca === undefined) return undefined;
  try {
    const computable = parseContentAddress(info.ca).method !== 'git';
    return computable && checkContentAddress(info, undefined) === 'unknown' ? info.ca : undefined;
  } catch {
    // Newer Nix may have addresses that are not known here.
    return undefined;
  }
}
