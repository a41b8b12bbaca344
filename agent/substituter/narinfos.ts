import type { Logger } from 'pino';
import { FormatError } from '../../nix/errors.ts';
import { type NarInfo, parseNarInfo, renderNarInfo } from '../../nix/narinfo.ts';
import { hashPart, type StorePathHash } from '../../nix/store-path.ts';
import { acceptNarInfo } from './accept.ts';
import type { CacheIndex } from './cache-index.ts';
import { ExpiringMap } from './expiring.ts';
import { formatNarName, narNameOf } from './nar-name.ts';
import type { Upstream } from './upstream.ts';
import type { Upstreams } from './upstreams.ts';

/** A narinfo that can be believed, and who said it. */
export interface FoundNarInfo {
  readonly upstream: Upstream;
  /** With the upstream's own URL. */
  readonly info: NarInfo;
}

/** Short, so that a path which was pushed a moment ago is found. */
const ABSENT_TTL_MS = 2_000;
const WARNED_TTL_MS = 60 * 60_000;
const REMEMBERED = 10_000;
/** How much longer a preferred upstream may take than one that has already answered. */
const GRACE_MS = 250;

/** Finds narinfos: kept ones, and those of the upstreams, each asked once however many clients wait. */
export class NarInfos {
  readonly #upstreams: Upstreams;
  readonly #index: CacheIndex;
  readonly #logger: Logger;
  readonly #asking = new Map<StorePathHash, Promise<FoundNarInfo | undefined>>();
  readonly #absent = new ExpiringMap<StorePathHash, true>(ABSENT_TTL_MS, REMEMBERED);
  readonly #warned = new ExpiringMap<string, true>(WARNED_TTL_MS, REMEMBERED);

  constructor(upstreams: Upstreams, index: CacheIndex, logger: Logger) {
    this.#upstreams = upstreams;
    this.#index = index;
    this.#logger = logger;
  }

  /** The document to answer with; undefined where no upstream has the path, or none can be asked. */
  async answer(hash: StorePathHash): Promise<string | undefined> {
    const kept = this.#index.narInfo(hash);
    if (kept !== undefined && this.#upstreams.byId(kept.upstream) !== undefined) return kept.text;
    const found = await this.#ask(hash);
    return found === undefined ? undefined : answerText(found.info);
  }

  /** The kept narinfo, or the preferred one of the upstreams. */
  async find(hash: StorePathHash): Promise<FoundNarInfo | undefined> {
    const kept = this.#index.narInfo(hash);
    const upstream = kept && this.#upstreams.byId(kept.upstream);
    if (kept === undefined || upstream === undefined) return this.#ask(hash);
    return { upstream, info: { ...parseNarInfo(kept.text), url: kept.narUrl } };
  }

  /** What each of the upstreams says now, the preferred first. */
  async findAll(hash: StorePathHash): Promise<FoundNarInfo[]> {
    const answers = this.#upstreams.ordered.map((upstream) => this.#askOne(upstream, hash));
    return (await Promise.all(answers)).filter((found) => found !== undefined);
  }

  /** The upstream no longer has what the kept narinfo promises: the next client asks anew. */
  forget(hash: StorePathHash): void {
    this.#index.forgetNarInfo(hash);
  }

  #ask(hash: StorePathHash): Promise<FoundNarInfo | undefined> {
    if (this.#absent.has(hash)) return Promise.resolve(undefined);
    let asking = this.#asking.get(hash);
    if (asking === undefined) {
      asking = this.#race(hash).finally(() => this.#asking.delete(hash));
      this.#asking.set(hash, asking);
    }
    return asking;
  }

  /** Asks all upstreams side by side and settles on the preferred of those that answer soon enough. */
  async #race(hash: StorePathHash): Promise<FoundNarInfo | undefined> {
    const settled = Promise.withResolvers<FoundNarInfo | undefined>();
    const answers: ('pending' | FoundNarInfo | undefined)[] = this.#upstreams.ordered.map(() => 'pending');
    const best = () =>
      answers.find((answer) => answer !== 'pending' && answer !== undefined) as FoundNarInfo | undefined;
    let grace: NodeJS.Timeout | undefined;
    const decide = () => {
      const leader = answers.find((answer) => answer !== undefined);
      if (leader !== 'pending') settled.resolve(leader);
      else if (best() !== undefined) grace ??= setTimeout(() => settled.resolve(best()), GRACE_MS);
    };
    this.#upstreams.ordered.forEach(async (upstream, position) => {
      answers[position] = await this.#askOne(upstream, hash);
      decide();
    });
    decide();
    const found = await settled.promise;
    clearTimeout(grace);
    if (found === undefined) this.#absent.set(hash, true);
    else this.#keep(found);
    return found;
  }

  async #askOne(upstream: Upstream, hash: StorePathHash): Promise<FoundNarInfo | undefined> {
    try {
      const text = await upstream.narInfo(hash);
      return text === undefined ? undefined : { upstream, info: acceptNarInfo(text, hash, upstream) };
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (!(error instanceof FormatError)) {
        this.#logger.warn({ upstream: upstream.url, hash, reason }, 'an upstream could not be asked');
      } else if (!this.#warned.has(`${upstream.id}/${hash}`)) {
        this.#warned.set(`${upstream.id}/${hash}`, true);
        this.#logger.warn({ upstream: upstream.url, hash, reason }, "an upstream's narinfo was refused");
      }
      return undefined;
    }
  }

  #keep({ upstream, info }: FoundNarInfo): void {
    this.#index.keepNarInfo(hashPart(info.path), {
      upstream: upstream.id,
      narUrl: info.url,
      text: answerText(info),
    });
  }
}

/** The narinfo with the agent's own address for the NAR, which no signature covers. */
function answerText(info: NarInfo): string {
  return renderNarInfo({ ...info, url: `nar/${formatNarName(narNameOf(info))}` });
}
