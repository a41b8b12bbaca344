/** Bytes `start` up to but not including `end`. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/**
 * Reads a `Range` header against a file of `size` bytes.
 *
 * @returns the range, `unsatisfiable` (416), or undefined where the whole file is the right answer: no
 *   header, another unit, several ranges, or a header that says nothing sensible.
 */
export function parseRange(
  header: string | undefined,
  size: number,
): ByteRange | 'unsatisfiable' | undefined {
  const match = /^bytes=([0-9]{0,15})-([0-9]{0,15})$/.exec(header ?? '');
  if (match === null) return undefined;
  const [, first, last] = match;
  if (first) {
    const start = Number(first);
    const end = last ? Math.min(Number(last) + 1, size) : size;
    if (last && Number(last) < start) return undefined;
    return start < size ? { start, end } : 'unsatisfiable';
  }
  if (!last) return undefined;
  const length = Math.min(Number(last), size);
  return length > 0 ? { start: size - length, end: size } : 'unsatisfiable';
}
