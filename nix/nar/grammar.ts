import { FormatError } from '../errors.ts';

/** Bytes of a name at most, as file systems have it. */
export const MAX_NAME_SIZE = 255;
/** Bytes of a symlink's target at most. */
export const MAX_TARGET_SIZE = 4095;

/** Zeros that follow `size` bytes, up to a multiple of 8. */
export function paddingOf(size: number): number {
  return (8 - (size % 8)) % 8;
}

/** Texts as the NAR writes them: the size as a 64-bit little-endian number, the bytes, zeros. */
export function encodeStrings(...texts: readonly string[]): Buffer {
  const parts = texts.map((text) => {
    const part = Buffer.alloc(8 + text.length + paddingOf(text.length));
    part.writeUInt32LE(text.length);
    part.write(text, 8, 'latin1');
    return part;
  });
  return Buffer.concat(parts);
}

export const MAGIC = encodeStrings('nix-archive-1');
export const OPEN_NODE = encodeStrings('(', 'type');
export const OPEN_ENTRY_NODE = encodeStrings('node', '(', 'type');
export const DIRECTORY = encodeStrings('directory');
export const REGULAR = encodeStrings('regular');
export const SYMLINK = encodeStrings('symlink');
export const ENTRY = encodeStrings('entry');
export const ENTRY_NAME = encodeStrings('(', 'name');
export const EXECUTABLE = encodeStrings('executable');
export const CONTENTS = encodeStrings('contents');
export const TARGET = encodeStrings('target');
export const CLOSE = encodeStrings(')');

/** Whether `bytes` has `tags` at `at`. */
export function hasTags(bytes: Uint8Array, at: number, tags: Buffer): boolean {
  for (let i = 0; i < tags.length; i++) if (bytes[at + i] !== tags[i]) return false;
  return true;
}

/**
 * @param offset the place of `bytes[at]` in the NAR, for the message
 * @throws FormatError `nar_bad_tag`, or `nar_padding` where the tag is right but the bytes behind it are not
 */
export function expectTags(bytes: Uint8Array, at: number, tags: Buffer, offset: number): void {
  if (hasTags(bytes, at, tags)) return;
  for (let tag = 0; ; ) {
    const end = tag + 8 + tags.readUInt32LE(tag);
    if (!hasTags(bytes, at + tag, tags.subarray(tag, end))) {
      const text = tags.toString('latin1', tag + 8, end);
      throw new FormatError(
        'nar_bad_tag',
        `the NAR has no '${text}' at byte ${offset + tag}, where one must be`,
      );
    }
    const next = end + paddingOf(end);
    expectZeros(bytes, at + end, next - end, offset + end);
    tag = next;
  }
}

/** @throws FormatError `nar_padding` */
export function expectZeros(bytes: Uint8Array, at: number, size: number, offset: number): void {
  for (let i = 0; i < size; i++) {
    if (bytes[at + i] !== 0) {
      throw new FormatError(
        'nar_padding',
        `the NAR is filled up with other bytes than zeros at byte ${offset + i}`,
      );
    }
  }
}

/** The number at `at`: exact if it is a safe integer. */
export function readSize(bytes: Uint8Array, at: number): number {
  return readUInt32(bytes, at + 4) * 0x1_0000_0000 + readUInt32(bytes, at);
}

function readUInt32(bytes: Uint8Array, at: number): number {
  const [a, b, c, d] = [bytes[at] ?? 0, bytes[at + 1] ?? 0, bytes[at + 2] ?? 0, bytes[at + 3] ?? 0];
  return (a | (b << 8) | (c << 16) | (d << 24)) >>> 0;
}
