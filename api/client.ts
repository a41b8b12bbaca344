import { createHash } from 'node:crypto';
import { Agent, type Dispatcher, request } from 'undici';
import type { Sha256 } from '../nix/hash.ts';
import { formatSha256 } from '../nix/hash.ts';
import type { StorePath, StorePathHash } from '../nix/store-path.ts';
import type { CacheName } from './cache-name.ts';
import { COMMIT_TYPE } from './commit-body.ts';
import { encodeCommit } from './commit-encode.ts';
import { ApiError } from './problem.ts';
import type { Cache, CommitEntry, CommitResult, MissingResponse, Problem, Upload, User } from './schemas.ts';

export interface OriginClientOptions {
  /** Where the origin's API is: `http://host:port`, without a path. */
  readonly url: string;
  /** API token; sent as Bearer. */
  readonly token?: string | undefined;
  /** The program that calls, for the origin's logs. */
  readonly userAgent: string;
  /** Milliseconds without a byte from the origin until a call fails. The origin sends a sign of life each 10 s. */
  readonly idleTimeout?: number;
}

/**
 * The origin's API, typed. Every call that fails throws {@link ApiError}; one that did not reach the origin has
 * status 0 and code `unreachable`. Nothing is retried here: what may be repeated is known by the caller.
 */
export class OriginClient {
  readonly url: string;
  readonly #headers: Record<string, string>;
  readonly #agent: Agent;

  constructor(options: OriginClientOptions) {
    this.url = options.url.replace(/\/+$/, '');
    this.#headers = { 'user-agent': options.userAgent };
    if (options.token !== undefined) this.#headers.authorization = `Bearer ${options.token}`;
    const idle = options.idleTimeout ?? 60_000;
    this.#agent = new Agent({
      connections: 16,
      headersTimeout: idle,
      bodyTimeout: idle,
      connectTimeout: 10_000,
    });
  }

  user(): Promise<User> {
    return this.#json('GET', '/api/v1/user');
  }

  cache(cache: CacheName): Promise<Cache> {
    return this.#json('GET', `/api/v1/caches/${cache}`);
  }

  /** Those of `hashes` the cache has no entry for, in the order they were given. */
  async missing(cache: CacheName, hashes: readonly StorePathHash[]): Promise<StorePathHash[]> {
    const answer = await this.#json<MissingResponse>('POST', `/api/v1/caches/${cache}/missing`, { hashes });
    return answer.missing as StorePathHash[];
  }

  /** Opens the upload of one NAR, or finds the one that an earlier push of the same path left unfinished. */
  openUpload(cache: CacheName, path: StorePath, narHash: Sha256): Promise<Upload> {
    return this.#json('POST', `/api/v1/caches/${cache}/uploads`, { path, narHash: formatSha256(narHash) });
  }

  /** Sends one part; sending it again replaces it. */
  async putPart(cache: CacheName, upload: string, number: number, part: Buffer): Promise<void> {
    const digest = createHash('sha256').update(part).digest('base64');
    await this.#send('PUT', `/api/v1/caches/${cache}/uploads/${upload}/parts/${number}`, {
      body: part,
      // RFC 9530
      headers: { 'content-type': 'application/octet-stream', 'content-digest': `sha-256=:${digest}:` },
    }).then((response) => response.body.dump());
  }

  /** Gives up an upload and its parts. */
  async dropUpload(cache: CacheName, upload: string): Promise<void> {
    await this.#send('DELETE', `/api/v1/caches/${cache}/uploads/${upload}`).then((response) =>
      response.body.dump(),
    );
  }

  /** Has the origin verify, sign and publish; yields one result for each item, in their order. */
  async *commit(
    cache: CacheName,
    items: Iterable<{ entry: CommitEntry; nar?: readonly Buffer[] | undefined }>,
  ): AsyncGenerator<CommitResult> {
    const { body, bytes } = encodeCommit(items);
    const response = await this.#send('POST', `/api/v1/caches/${cache}/commit`, {
      body,
      headers: { 'content-type': COMMIT_TYPE, 'content-length': String(bytes) },
    });
    let rest = '';
    try {
      for await (const chunk of response.body.setEncoding('utf8')) {
        const lines = (rest + chunk).split('\n');
        rest = lines.pop() as string;
        for (const line of lines) if (line !== '') yield readResult(line);
      }
    } catch (cause) {
      throw cause instanceof ApiError ? cause : this.#unreachable(cause);
    }
    if (rest !== '') throw this.#unreachable(new Error('the answer ended within a line'));
  }

  /** Ends all connections; calls under way fail. */
  close(): Promise<void> {
    return this.#agent.destroy();
  }

  async #json<T>(method: 'GET' | 'POST', path: string, body?: unknown): Promise<T> {
    const response = await this.#send(method, path, {
      ...(body === undefined
        ? {}
        : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
    try {
      return (await response.body.json()) as T;
    } catch (cause) {
      throw new ApiError(response.statusCode, 'bad_answer', `${this.url} does not answer as an origin does`, {
        hint: 'check that this is the address of a bcache origin',
        cause,
      });
    }
  }

  async #send(
    method: Dispatcher.HttpMethod,
    path: string,
    options: { body?: Dispatcher.DispatchOptions['body']; headers?: Record<string, string> } = {},
  ): Promise<Dispatcher.ResponseData> {
    let response: Dispatcher.ResponseData;
    try {
      response = await request(this.url + path, {
        method,
        dispatcher: this.#agent,
        headers: { ...this.#headers, ...options.headers },
        body: options.body ?? null,
      });
    } catch (cause) {
      throw this.#unreachable(cause);
    }
    if (response.statusCode < 300) return response;
    throw await failure(response);
  }

  #unreachable(cause: unknown): ApiError {
    const why =
      cause instanceof Error ? cause.message || (cause as NodeJS.ErrnoException).code : String(cause);
    return new ApiError(0, 'unreachable', `cannot reach the origin at ${this.url}: ${why}`, {
      hint: 'check that it runs and that the address is right',
      cause,
    });
  }
}

async function failure(response: Dispatcher.ResponseData): Promise<ApiError> {
  const text = await response.body.text().catch(() => '');
  const retryAfter = Number(response.headers['retry-after']);
  const more = Number.isFinite(retryAfter) ? { retryAfter } : {};
  try {
    const problem = JSON.parse(text) as Problem;
    if (typeof problem.code === 'string' && typeof problem.title === 'string') {
      const hint = problem.hint === undefined ? {} : { hint: problem.hint };
      return new ApiError(response.statusCode, problem.code, problem.title, { ...hint, ...more });
    }
  } catch {
    // Not one of ours: a proxy in between answered.
  }
  return new ApiError(response.statusCode, 'http_error', `the origin answered ${response.statusCode}`, more);
}

function readResult(line: string): CommitResult {
  const value = JSON.parse(line) as CommitResult | Problem;
  if ('result' in value) return value;
  throw new ApiError(
    value.status,
    value.code,
    value.title,
    value.hint === undefined ? {} : { hint: value.hint },
  );
}
