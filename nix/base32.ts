import { FormatError } from './errors.ts';

/** Nix's digits: no `e`, `o`, `u`, `t`. */
export const BASE32_ALPHABET = '0123456789abcdfghijklmnpqrsvwxyz';

const DIGIT_OF = new Int8Array(128).fill(-1);
for (let i = 0; i < 32; i++) DIGIT_OF[BASE32_ALPHABET.charCodeAt(i)] = i;

/** How many digits `bytes` bytes take. */
export function base32Length(bytes: number): number {
  return Math.ceil((bytes * 8) / 5);
}

/** Nix's base32: five bits a digit, least significant bits last, most significant digit first. */
export function encodeBase32(bytes: Uint8Array): string {
  let out = '';
  for (let k = base32Length(bytes.length) - 1; k >= 0; k--) {
    const bit = k * 5;
    const i = bit >> 3;
    const j = bit & 7;
    const low = (bytes[i] ?? 0) >> j;
    const high = j > 3 ? (bytes[i + 1] ?? 0) << (8 - j) : 0;
    out += BASE32_ALPHABET[(low | high) & 31];
  }
  return out;
}

/**
 * The bytes behind a base32 text.
 *
 * @throws FormatError for a foreign character, upper case, or bits left over at the end.
 */
export function decodeBase32(text: string): Buffer {
  const size = Math.floor((text.length * 5) / 8);
  const bytes = Buffer.alloc(size);
  for (let n = 0; n < text.length; n++) {
    const code = text.charCodeAt(text.length - n - 1);
    const digit = code < 128 ? (DIGIT_OF[code] as number) : -1;
    if (digit < 0) throw new FormatError('bad_base32', `'${text}' is not base32`);
    const bit = n * 5;
    const i = bit >> 3;
    const j = bit & 7;
    const spill = digit >> (8 - j);
    if (i < size) bytes[i] = (bytes[i] as number) | ((digit << j) & 255);
    else if (digit !== 0) throw new FormatError('bad_base32', `'${text}' has bits left over`);
    if (i + 1 < size) bytes[i + 1] = (bytes[i + 1] as number) | spill;
    else if (spill !== 0) throw new FormatError('bad_base32', `'${text}' has bits left over`);
  }
  if (base32Length(size) !== text.length) {
    throw new FormatError('bad_base32', `'${text}' has a length no base32 text has`);
  }
  return bytes;
}
