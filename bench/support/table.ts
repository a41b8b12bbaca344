/** The middle value, or the mean of the middle two. `values` must not be empty. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  return (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle) - 1]!) / 2;
}

/** `4.81 s`, with three significant digits. */
export function inSeconds(value: number): string {
  return `${value.toFixed(value < 10 ? 2 : 1)} s`;
}

/** `4.81 s [4.50–5.12]`: the median, and the least and the most where there are several. */
export function spread(values: readonly number[]): string {
  if (values.length === 1) return inSeconds(values[0]!);
  const [least, most] = [Math.min(...values), Math.max(...values)].map((value) =>
    inSeconds(value).slice(0, -2),
  );
  return `${inSeconds(median(values))} [${least}–${most}]`;
}

/**
 * `bcache 5.10 s [5.00–5.30], nix copy 14.0 s [13.8–14.9] (0.36×)`: the subject's seconds, then those they are
 * held against, each with the subject's median divided by theirs.
 */
export function against(
  subject: readonly [name: string, seconds: readonly number[]],
  others: readonly (readonly [name: string, seconds: readonly number[]])[],
): string {
  const [name, own] = subject;
  const parts = others.map(
    ([other, values]) => `${other} ${spread(values)} (${(median(own) / median(values)).toFixed(2)}×)`,
  );
  return [`${name} ${spread(own)}`, ...parts].join(', ');
}
