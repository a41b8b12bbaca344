import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { brotliDecompressSync, gunzipSync, zstdDecompressSync } from 'node:zlib';
import { Agent, type Dispatcher, interceptors } from 'undici';
import { BcacheError } from '../../nix/errors.ts';
import { type PublicKey, parsePublicKey } from '../../nix/keys.ts';
import { MAX_NARINFO_BYTES } from '../../nix/narinfo.ts';
import type { StorePathHash } from '../../nix/store-path.ts';
import { MAX_CACHE_INFO_BYTES } from './cache-info.ts';

export interface UpstreamOptions {
  /** `http://` or `https://`; a user and password in it are used as `login`. */
  readonly url: string;
  /** `<name>:<base64>`; a narinfo of this cache needs a signature by one of them. */
  readonly publicKeys: readonly string[];
  /** Lower is preferred. Default: what the cache's own nix-cache-info says. */
  readonly priority?: number;
  readonly login?: { readonly user: string; readonly password: string };
}

/** A NAR's bytes as they arrive, from the offset asked for. */
export interface NarResponse {
  readonly body: Readable;
  /** Bytes of the whole file, undefined where the upstream does not say. */
  readonly size: number | undefined;
}

/** An upstream could not be asked, or gave no usable answer. */
export class UpstreamError extends BcacheError {}

/** For an answer that is one small document, from the request to its last byte. */
const DOCUMENT_TIMEOUT_MS = 4_000;
const CONNECT_TIMEOUT_MS = 4_000;
const NAR_HEADERS_TIMEOUT_MS = 30_000;
/** Without a single byte. */
const NAR_STALL_TIMEOUT_MS = 30_000;
/** What has arrived while the last write was under way is written at once, up to so many bytes. */
const NAR_BUFFER = 256 << 10;
const MAX_REDIRECTS = 5;

/** One binary cache that the agent asks: its address, its keys, its connections. */
export class Upstream {
  /** Without credentials, query or trailing slash: fit for logs. */
  readonly url: string;
  /** Changes with the address and with the keys, so that what was kept under other keys is not trusted. */
  readonly id: string;
  readonly trusted: readonly PublicKey[];
  readonly priority: number | undefined;
  readonly #authorization: string | undefined;
  /** Apart, so that long downloads do not take the connections of short questions. */
  readonly #documents: Connections;
  readonly #nars: Connections;

  /** @throws BcacheError bad_upstream for an address or key that cannot be used */
  constructor(options: UpstreamOptions) {
    const url = readAddress(options.url);
    const login = options.login ?? loginOf(url);
    url.username = '';
    url.password = '';
    url.search = '';
    url.hash = '';
    this.url = url.href.replace(/\/+$/, '');
    this.trusted = options.publicKeys.map(parsePublicKey);
    const keys = this.trusted.map((key) => key.text).sort();
    this.id = createHash('sha256')
      .update([this.url, ...keys].join('\n'))
      .digest('hex');
    this.priority = options.priority;
    if (login !== undefined) {
      this.#authorization = `Basic ${Buffer.from(`${login.user}:${login.password}`).toString('base64')}`;
    }
    this.#documents = connect(32);
    this.#nars = connect(16);
  }

  /** The text of a narinfo, undefined where the cache does not have it. @throws UpstreamError */
  async narInfo(hash: StorePathHash): Promise<string | undefined> {
    return this.#document(`${this.url}/${hash}.narinfo`, MAX_NARINFO_BYTES);
  }

  /** The text of nix-cache-info, undefined where the cache has none. @throws UpstreamError */
  async cacheInfo(): Promise<string | undefined> {
    return this.#document(`${this.url}/nix-cache-info`, MAX_CACHE_INFO_BYTES);
  }

  /**
   * The NAR behind a narinfo's URL, from byte `offset` on; undefined where the cache does not have it.
   *
   * @throws UpstreamError also when the answer to an `offset` is not that part of the file
   */
  async nar(narUrl: string, offset: number, signal: AbortSignal): Promise<NarResponse | undefined> {
    const range: Record<string, string> = offset > 0 ? { range: `bytes=${offset}-` } : {};
    const { statusCode, headers, body } = await this.#request(this.#nars.dispatcher, this.#resolve(narUrl), {
      headers: range,
      signal,
      headersTimeout: NAR_HEADERS_TIMEOUT_MS,
      bodyTimeout: NAR_STALL_TIMEOUT_MS,
      highWaterMark: NAR_BUFFER,
    });
    // A body that nobody reads any more may still fail; that is no news.
    body.on('error', () => {});
    try {
      if (isAbsent(statusCode)) {
        await body.dump();
        return undefined;
      }
      if (statusCode !== (offset > 0 ? 206 : 200)) throw badStatus(statusCode);
      const encoding = headers['content-encoding'] ?? 'identity';
      if (encoding !== 'identity') {
        throw new UpstreamError('upstream_encoding', `the NAR came with Content-Encoding ${encoding}`);
      }
      if (offset === 0) {
        const length = headers['content-length'];
        return { body, size: length === undefined ? undefined : Number(length) };
      }
      return { body, size: sizeOfRest(String(headers['content-range'] ?? ''), offset) };
    } catch (error) {
      body.destroy();
      throw error;
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#documents.close(), this.#nars.close()]);
  }

  async #document(url: string, limit: number): Promise<string | undefined> {
    const signal = AbortSignal.timeout(DOCUMENT_TIMEOUT_MS);
    const { statusCode, headers, body } = await this.#request(this.#documents.dispatcher, new URL(url), {
      signal,
    });
    try {
      if (statusCode !== 200) {
        await body.dump({ limit: 64 << 10 });
        if (isAbsent(statusCode)) return undefined;
        throw badStatus(statusCode);
      }
      const chunks: Buffer[] = [];
      let size = 0;
      for await (const chunk of body) {
        size += chunk.length;
        if (size > limit) throw new UpstreamError('upstream_too_large', 'the answer is larger than allowed');
        chunks.push(chunk);
      }
      return decode(Buffer.concat(chunks), headers['content-encoding'], limit).toString();
    } catch (error) {
      throw asUpstreamError(error);
    }
  }

  #resolve(narUrl: string): URL {
    const url = URL.parse(narUrl, `${this.url}/`);
    if (url === null || !/^https?:$/.test(url.protocol)) {
      throw new UpstreamError('upstream_url', 'the narinfo names an address that is not http or https');
    }
    return url;
  }

  async #request(
    dispatcher: Dispatcher,
    url: URL,
    options: Omit<Dispatcher.RequestOptions, 'path' | 'method' | 'origin' | 'headers'> & {
      headers?: Record<string, string>;
    },
  ): Promise<Dispatcher.ResponseData> {
    const headers: Record<string, string> = { 'user-agent': 'bcache-agent', ...options.headers };
    // A narinfo may point to another host, which must not learn the login.
    if (this.#authorization !== undefined && url.origin === new URL(this.url).origin) {
      headers.authorization = this.#authorization;
    }
    const request = () =>
      dispatcher.request({
        ...options,
        headers,
        origin: url.origin,
        path: url.pathname + url.search,
        method: 'GET',
      });
    try {
      // A kept connection may be closed by the other side just as it is used again: that says nothing yet.
      return await request().catch((error) =>
        isBrokenConnection(error) ? request() : Promise.reject(error),
      );
    } catch (error) {
      throw asUpstreamError(error);
    }
  }
}

interface Connections {
  readonly dispatcher: Dispatcher;
  close(): Promise<void>;
}

function connect(connections: number): Connections {
  const agent = new Agent({
    connections,
    connect: { timeout: CONNECT_TIMEOUT_MS },
    keepAliveTimeout: 30_000,
  });
  const dispatcher = agent.compose(interceptors.redirect({ maxRedirections: MAX_REDIRECTS }));
  return { dispatcher, close: () => agent.destroy() };
}

function isBrokenConnection(error: unknown): boolean {
  return (
    error instanceof Error &&
    'code' in error &&
    /^(UND_ERR_SOCKET|ECONNRESET|EPIPE)$/.test(String(error.code))
  );
}

/** 403 is how an S3 bucket that may not be listed says "no such object". */
function isAbsent(status: number): boolean {
  return status === 404 || status === 410 || status === 403;
}

function badStatus(status: number): UpstreamError {
  return new UpstreamError('upstream_status', `it answered with status ${status}`);
}

function asUpstreamError(error: unknown): UpstreamError {
  if (error instanceof UpstreamError) return error;
  if (error instanceof Error && error.name === 'TimeoutError') {
    return new UpstreamError('upstream_timeout', 'it did not answer in time', { cause: error });
  }
  const reason = error instanceof Error ? error.message || error.name : String(error);
  return new UpstreamError('upstream_unreachable', reason, { cause: error });
}

function decode(bytes: Buffer, encoding: string | string[] | undefined, limit: number): Buffer {
  const options = { maxOutputLength: limit };
  switch (encoding) {
    case undefined:
    case 'identity':
      return bytes;
    case 'gzip':
      return gunzipSync(bytes, options);
    case 'br':
      return brotliDecompressSync(bytes, options);
    case 'zstd':
      return zstdDecompressSync(bytes, options);
    default:
      throw new UpstreamError('upstream_encoding', `it answered with Content-Encoding ${encoding}`);
  }
}

/** The size of the whole file by a Content-Range, which must be the rest of it from `offset`. */
function sizeOfRest(contentRange: string, offset: number): number {
  const match = /^bytes ([0-9]+)-([0-9]+)\/([0-9]+)$/.exec(contentRange);
  const [start, last, size] = match === null ? [] : match.slice(1).map(Number);
  if (start !== offset || last === undefined || size === undefined || last !== size - 1) {
    throw new UpstreamError('upstream_range', `'${contentRange.slice(0, 80)}' is not the range asked for`);
  }
  return size;
}

function readAddress(text: string): URL {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw new BcacheError('bad_upstream', 'an upstream cache needs an http:// or https:// address', {
      hint: `Correct '${text.replace(/\/\/[^/]*@/, '//')}' in the agent's list of upstreams.`,
    });
  }
  return url;
}

function loginOf(url: URL): { user: string; password: string } | undefined {
  if (url.username === '' && url.password === '') return undefined;
  return { user: decodeURIComponent(url.username), password: decodeURIComponent(url.password) };
}
