import { rm } from 'node:fs/promises';
import type { Logger } from 'pino';
import { FormatError } from '../../nix/errors.ts';
import { ExpiringMap } from './expiring.ts';
import { GrowingFile } from './growing-file.ts';
import type { LocalCache } from './local-cache.ts';
import type { NarBytes } from './nar-bytes.ts';
import { formatNarName, type NarName, narFileName } from './nar-name.ts';
import { maxFileSize, transferNar } from './nar-transfer.ts';
import type { FoundNarInfo, NarInfos } from './narinfos.ts';
import type { NarResponse } from './upstream.ts';

/**
 * How long a NAR that failed is answered 404. A client that was cut off tries again several times; a 404
 * sends it on to the next substituter, or to building locally, at once.
 */
const BROKEN_TTL_MS = 60_000;
const REMEMBERED = 10_000;

/** A NAR on its way from an upstream. */
interface Arrival {
  /** The file, once an upstream has begun to send it; undefined where none does. */
  readonly started: Promise<GrowingFile | undefined>;
  readonly finished: Promise<void>;
}

/** Hands out NARs: kept ones, and those of the upstreams, each fetched once however many clients wait. */
export class Nars {
  readonly #narInfos: NarInfos;
  readonly #cache: LocalCache;
  readonly #logger: Logger;
  readonly #arriving = new Map<string, Arrival>();
  readonly #broken = new ExpiringMap<string, true>(BROKEN_TTL_MS, REMEMBERED);
  readonly #closing = new AbortController();

  constructor(narInfos: NarInfos, cache: LocalCache, logger: Logger) {
    this.#narInfos = narInfos;
    this.#cache = cache;
    this.#logger = logger;
  }

  /** The NAR's file, kept or arriving; undefined where it cannot be had. */
  async open(name: NarName): Promise<NarBytes | undefined> {
    const file = narFileName(name);
    for (let tries = 0; tries < 3; tries++) {
      const kept = await this.#cache.openNar(file);
      if (kept !== undefined) return kept;
      // It may have come while the kept file was looked for.
      if (this.#cache.index.narSize(file) !== undefined) continue;
      if (this.#broken.has(file) || this.#closing.signal.aborted) return undefined;
      const arrival = this.#arriving.get(file) ?? this.#begin(name, file);
      const growing = await arrival.started;
      if (growing === undefined) return undefined;
      const bytes = growing.join();
      if (bytes !== undefined) return bytes;
    }
    return undefined;
  }

  /** Whether the NAR can be had as far as is known, and its file's size, without fetching it. */
  async look(name: NarName): Promise<{ size: number | undefined } | undefined> {
    const file = narFileName(name);
    const size = this.#cache.index.narSize(file);
    if (size !== undefined) return { size };
    if (this.#broken.has(file)) return undefined;
    for await (const { info } of this.#sources(name)) return { size: info.fileSize };
    return undefined;
  }

  isArriving(file: string): boolean {
    return this.#arriving.has(file);
  }

  /** Breaks off what is arriving. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#arriving.values()].map((arrival) => arrival.finished));
  }

  #begin(name: NarName, file: string): Arrival {
    const started = Promise.withResolvers<GrowingFile | undefined>();
    const finished = this.#fetch(name, file, started.resolve)
      .catch((error) => this.#logger.error({ err: error, nar: formatNarName(name) }, 'fetching a NAR failed'))
      .finally(() => {
        this.#arriving.delete(file);
        started.resolve(undefined);
      });
    const arrival = { started: started.promise, finished };
    this.#arriving.set(file, arrival);
    return arrival;
  }

  async #fetch(name: NarName, file: string, onStart: (growing: GrowingFile) => void): Promise<void> {
    for await (const source of this.#sources(name)) {
      const response = await this.#ask(source, name);
      if (response === undefined) continue;
      let growing: GrowingFile;
      try {
        growing = await GrowingFile.create(
          this.#cache.temporaryPath(),
          response.size ?? source.info.fileSize,
        );
      } catch (error) {
        response.body.destroy();
        throw error;
      }
      onStart(growing);
      try {
        await this.#take(source, response, growing, file);
      } finally {
        growing.release();
      }
      return;
    }
  }

  /** Brings one NAR in, and either keeps it or leaves nothing of it. */
  async #take(
    source: FoundNarInfo,
    response: NarResponse,
    growing: GrowingFile,
    file: string,
  ): Promise<void> {
    const context = { upstream: source.upstream.url, path: source.info.path };
    try {
      await transferNar(source, response, growing, this.#closing.signal, this.#logger);
    } catch (error) {
      // Before the readers are cut off: their next try must already be told 404.
      this.#broken.set(file, true);
      growing.fail(error);
      await rm(growing.path, { force: true });
      this.#logFailure(error, context);
      return;
    }
    growing.seal();
    try {
      await this.#cache.keepNar(file, growing);
    } catch (error) {
      await rm(growing.path, { force: true });
      this.#logFailure(error, context);
    }
  }

  async #ask(source: FoundNarInfo, name: NarName): Promise<NarResponse | undefined> {
    const { upstream, info } = source;
    const context = { upstream: upstream.url, path: info.path };
    try {
      const response = await upstream.nar(info.url, 0, this.#closing.signal);
      if (response === undefined) {
        this.#logger.warn(context, 'an upstream has a narinfo but not its NAR');
        this.#narInfos.forget(name.storeHash);
      } else if ((response.size ?? 0) > maxFileSize(info.narSize)) {
        this.#logger.warn({ ...context, size: response.size }, 'a NAR is larger than it can be');
        response.body.destroy();
        return undefined;
      }
      return response;
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.#logger.warn({ ...context, reason }, 'an upstream did not send a NAR');
      return undefined;
    }
  }

  /** Where exactly these bytes may be had: the narinfo at hand, then whatever else the upstreams name. */
  async *#sources(name: NarName): AsyncGenerator<FoundNarInfo> {
    const fits = ({ info }: FoundNarInfo) =>
      info.narHash === name.narHash && info.compression === name.compression;
    const first = await this.#narInfos.find(name.storeHash);
    if (first === undefined) return;
    if (fits(first)) yield first;
    for (const found of await this.#narInfos.findAll(name.storeHash)) {
      const tried = found.upstream === first.upstream && found.info.url === first.info.url;
      if (fits(found) && !tried) yield found;
    }
  }

  #logFailure(error: unknown, context: { upstream: string; path: string }): void {
    if (this.#closing.signal.aborted) return;
    const reason = error instanceof Error ? error.message : String(error);
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'ENOSPC' || code === 'EDQUOT' || code === 'EFBIG') {
      this.#logger.error({ ...context, code }, "the disk of the agent's state directory is full");
    } else if (error instanceof FormatError) {
      this.#logger.error({ ...context, code, reason }, 'an upstream sent a NAR that is not what it promised');
    } else {
      this.#logger.error({ ...context, code, reason }, 'a NAR could not be fetched');
    }
  }
}
