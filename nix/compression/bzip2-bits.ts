/** Thrown where a read needs bits that have not arrived. */
export class OutOfInput extends Error {}

/** Reads bits from a buffer, most significant first. */
export class BitReader {
  readonly #input: Uint8Array;
  #at = 0;
  #bits = 0;
  #count = 0;

  /** @param used how many bits of the first byte have been read before, 0 to 7 */
  constructor(input: Uint8Array, used: number) {
    this.#input = input;
    if (used > 0) this.take(used);
  }

  /** The next `n` bits, 1 to 24, as an unsigned number. */
  take(n: number): number {
    const value = this.peek(n);
    this.drop(n);
    return value;
  }

  take32(): number {
    return this.take(16) * 0x10000 + this.take(16);
  }

  /** As {@link take}, but the bits stay; behind the end of the input there are zeros. */
  peek(n: number): number {
    while (this.#count < n) {
      this.#bits = (this.#bits << 8) | (this.#input[this.#at++] ?? 0);
      this.#count += 8;
    }
    return (this.#bits >>> (this.#count - n)) & ((1 << n) - 1);
  }

  /** Passes over `n` bits that have been peeked at. */
  drop(n: number): void {
    this.#count -= n;
    if (this.#at - (this.#count >> 3) > this.#input.length) throw new OutOfInput();
  }

  /** Passes over the rest of a byte that has been begun. */
  align(): void {
    this.#count -= this.#count & 7;
  }

  /** The byte that the next bit is in, and how many bits of it have been read. */
  position(): { byte: number; bit: number } {
    const bitsRead = this.#at * 8 - this.#count;
    return { byte: bitsRead >> 3, bit: bitsRead & 7 };
  }
}
