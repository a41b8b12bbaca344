import { join } from 'node:path';
import type { Logger } from 'pino';
import { LocalCache } from './local-cache.ts';
import { NarInfos } from './narinfos.ts';
import { Nars } from './nars.ts';
import type { Upstreams } from './upstreams.ts';

export interface SubstituterOptions {
  readonly stateDir: string;
  /** Bytes that kept NAR files may take; default: no bound. */
  readonly cacheBytes?: number | undefined;
}

/** What stands behind the routes: the upstreams and the local cache, joined. */
export class Substituter {
  readonly narInfos: NarInfos;
  readonly nars: Nars;
  readonly #cache: LocalCache;
  readonly #upstreams: Upstreams;
  readonly #sweep: Promise<void>;

  private constructor(cache: LocalCache, upstreams: Upstreams, logger: Logger) {
    this.#cache = cache;
    this.#upstreams = upstreams;
    this.narInfos = new NarInfos(upstreams, cache.index, logger);
    this.nars = new Nars(this.narInfos, cache, logger);
    upstreams.learn(cache.index);
    this.#sweep = cache
      .sweep((name) => this.nars.isArriving(name))
      .catch((error) => logger.error({ err: error }, 'the local cache could not be cleaned'));
  }

  /** @throws BcacheError state_unusable, state_in_use */
  static open(options: SubstituterOptions, upstreams: Upstreams, logger: Logger): Substituter {
    const cache = LocalCache.open(join(options.stateDir, 'cache'), { maxBytes: options.cacheBytes }, logger);
    return new Substituter(cache, upstreams, logger);
  }

  async close(): Promise<void> {
    await this.nars.close();
    await this.#upstreams.close();
    await this.#sweep;
    this.#cache.close();
  }
}
