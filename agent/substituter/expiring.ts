/**
 * A bounded map whose entries go away by themselves after `ttl` milliseconds.
 *
 * When it is full the oldest entry makes room, so what is remembered here must only ever save work.
 */
export class ExpiringMap<Key, Value> {
  readonly #entries = new Map<Key, { value: Value; expires: number }>();
  readonly #ttl: number;
  readonly #limit: number;

  constructor(ttl: number, limit: number) {
    this.#ttl = ttl;
    this.#limit = limit;
  }

  set(key: Key, value: Value): void {
    this.#entries.delete(key);
    this.#entries.set(key, { value, expires: performance.now() + this.#ttl });
    if (this.#entries.size > this.#limit) {
      for (const oldest of this.#entries.keys()) {
        this.#entries.delete(oldest);
        break;
      }
    }
  }

  get(key: Key): Value | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (entry.expires > performance.now()) return entry.value;
    this.#entries.delete(key);
    return undefined;
  }

  has(key: Key): boolean {
    return this.get(key) !== undefined;
  }

  delete(key: Key): void {
    this.#entries.delete(key);
  }
}
