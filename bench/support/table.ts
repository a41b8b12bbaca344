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

/**
 * `bcache 5.10 s, nix copy 14.0 s (0.36×)`: the subject's time, then those it is held against, each with the
 * subject's time divided by it.
 */
export function against(
  subject: readonly [name: string, seconds: number],
  others: readonly (readonly [name: string, seconds: number])[],
): string {
  const [name, own] = subject;
  const parts = others.map(
    ([other, seconds]) => `${other} ${inSeconds(seconds)} (${(own / seconds).toFixed(2)}×)`,
  );
  return [`${name} ${inSeconds(own)}`, ...parts].join(', ');
}
