import type { Logger } from 'pino';
import type { CacheIndex } from './cache-index.ts';
import { type CacheInfo, commonStoreDir, parseCacheInfo, renderCacheInfo } from './cache-info.ts';
import type { Upstream } from './upstream.ts';

/** For an upstream that names no priority and whose nix-cache-info nobody has seen yet: after all others. */
const UNKNOWN_PRIORITY = 100;
const REFRESH_INTERVAL_MS = 10 * 60_000;

/** The caches behind the agent, in order of preference, and what is known of each. */
export class Upstreams {
  readonly all: readonly Upstream[];
  readonly #logger: Logger;
  readonly #infos = new Map<Upstream, CacheInfo>();
  #ordered: readonly Upstream[];
  #answer = renderCacheInfo(undefined);
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(all: readonly Upstream[], logger: Logger) {
    this.all = all;
    this.#ordered = all;
    this.#logger = logger;
    for (const upstream of all) {
      if (upstream.trusted.length > 0) continue;
      logger.warn(
        { upstream: upstream.url },
        'an upstream has no public key: only what proves itself by its content will be used',
      );
    }
    this.#update();
  }

  /** The most preferred first; among equals, the order of the configuration. */
  get ordered(): readonly Upstream[] {
    return this.#ordered;
  }

  /** The agent's own nix-cache-info, ready to be sent. */
  get cacheInfo(): string {
    return this.#answer;
  }

  byId(id: string): Upstream | undefined {
    return this.all.find((upstream) => upstream.id === id);
  }

  /** Takes over what `index` remembers and, in the background, asks the upstreams again from time to time. */
  learn(index: CacheIndex): void {
    for (const upstream of this.all) {
      const text = index.cacheInfo(upstream.id);
      if (text !== undefined) this.#infos.set(upstream, parseCacheInfo(text));
    }
    this.#update();
    const refresh = () => {
      for (const upstream of this.all) void this.#ask(upstream, index);
    };
    refresh();
    this.#timer = setInterval(refresh, REFRESH_INTERVAL_MS);
    this.#timer.unref();
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    await Promise.all(this.all.map((upstream) => upstream.close()));
  }

  async #ask(upstream: Upstream, index: CacheIndex): Promise<void> {
    try {
      const text = await upstream.cacheInfo();
      // A cache without the document is an ordinary one that says nothing.
      const info = parseCacheInfo(text ?? '');
      if (this.#closed) return;
      this.#infos.set(upstream, info);
      index.keepCacheInfo(upstream.id, text ?? '');
      this.#update();
    } catch (error) {
      if (this.#closed) return;
      const reason = error instanceof Error ? error.message : String(error);
      this.#logger.warn({ upstream: upstream.url, reason }, 'an upstream did not say its nix-cache-info');
    }
  }

  #update(): void {
    const priority = (upstream: Upstream) =>
      upstream.priority ?? this.#infos.get(upstream)?.priority ?? UNKNOWN_PRIORITY;
    this.#ordered = this.all.toSorted((a, b) => priority(a) - priority(b));
    this.#answer = renderCacheInfo(commonStoreDir(this.all.map((upstream) => this.#infos.get(upstream))));
  }
}
