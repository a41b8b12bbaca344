import { createHash, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { RetryPolicy } from '../../agent/push/retry.ts';
import { type CacheName, parseCacheName } from '../../api/cache-name.ts';
import { OriginClient } from '../../api/client.ts';
import { decodeCommit } from '../../api/commit-decode.ts';
import { ApiError } from '../../api/problem.ts';
import type { CommitEntry, CommitResult } from '../../api/schemas.ts';

/** Quick enough for tests. */
export const QUICK_RETRY: RetryPolicy = { tries: 4, firstDelay: 5, maxDelay: 20 };

/** A path as the origin came to have it. */
export interface FakeEntry {
  readonly entry: CommitEntry;
  /** The compressed NAR; empty where the origin keeps none. */
  readonly file: Buffer;
  /** Which commit brought it, from 0. */
  readonly commit: number;
}

export interface FakeUpload {
  readonly id: string;
  readonly narHash: string;
  readonly parts: Map<number, Buffer>;
}

/** What a test may put in the way of a request; true where the request was dealt with. */
export type Fault = (
  request: { method: string; path: string; count: number },
  raw: { request: IncomingMessage; response: ServerResponse },
) => boolean | Promise<boolean>;

/**
 * The origin's API for one cache, in memory: it checks the order of references but no NARs.
 * What it was asked is there for the test to look at, and each request can be made to fail.
 */
export class FakeOrigin {
  readonly cache: CacheName = parseCacheName('main');
  readonly entries = new Map<string, FakeEntry>();
  readonly uploads = new Map<string, FakeUpload>();
  /** `METHOD path` of each request, in order. */
  readonly requests: string[] = [];
  /** Full paths of each commit, as they came. */
  readonly commits: string[][] = [];
  partSize = 1 << 20;
  fault: Fault = () => false;
  /** Decides on a path in the origin's place. */
  judge: (entry: CommitEntry) => CommitResult | undefined = () => undefined;
  /** Whether the bytes of NARs are kept. */
  keep = true;
  readonly #server = createServer((request, response) => {
    this.#answer(request, response).catch((error) => fail(response, error));
  });
  readonly #clients: OriginClient[] = [];

  static async start(): Promise<FakeOrigin> {
    const origin = new FakeOrigin();
    await new Promise<void>((resolve) => origin.#server.listen(0, '127.0.0.1', resolve));
    return origin;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  client(): OriginClient {
    const client = new OriginClient({ url: this.url, userAgent: 'test', idleTimeout: 5000 });
    this.#clients.push(client);
    return client;
  }

  async close(): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.close()));
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const method = request.method as string;
    const path = (request.url as string).replace(`/api/v1/caches/${this.cache}/`, '');
    const line = `${method} ${path}`;
    this.requests.push(line);
    const count = this.requests.filter((other) => other === line).length;
    if (await this.fault({ method, path, count }, { request, response })) return;
    const [, upload, part] = /^uploads\/([^/]+)(?:\/parts\/(\d+))?$/.exec(path) ?? [];
    if (line === 'POST missing') {
      const { hashes } = JSON.parse((await readAll(request)).toString()) as { hashes: string[] };
      reply(response, { missing: hashes.filter((hash) => !this.entries.has(hash)) });
    } else if (line === 'POST uploads') {
      const { narHash } = JSON.parse((await readAll(request)).toString()) as { narHash: string };
      reply(response, this.#openUpload(narHash));
    } else if (method === 'PUT' && upload !== undefined) {
      const bytes = await readAll(request);
      const digest = createHash('sha256').update(bytes).digest('base64');
      if (request.headers['content-digest'] !== `sha-256=:${digest}:`)
        throw new ApiError(400, 'bad_digest', '');
      this.#upload(upload).parts.set(Number(part), this.keep ? bytes : Buffer.alloc(0));
      response.writeHead(204).end();
    } else if (method === 'DELETE' && upload !== undefined) {
      this.#upload(upload);
      this.uploads.delete(upload);
      response.writeHead(204).end();
    } else if (line === 'POST commit') {
      await this.#commit(request, response);
    } else {
      throw new ApiError(404, 'not_found', `no such thing: ${line}`);
    }
  }

  #openUpload(narHash: string): object {
    let upload = [...this.uploads.values()].find((other) => other.narHash === narHash);
    if (upload === undefined) {
      upload = { id: randomUUID(), narHash, parts: new Map() };
      this.uploads.set(upload.id, upload);
    }
    const parts = [...upload.parts].map(([number, bytes]) => {
      return { number, size: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') };
    });
    return { id: upload.id, partSize: this.partSize, parts };
  }

  #upload(id: string): FakeUpload {
    const upload = this.uploads.get(id);
    if (upload === undefined) throw new ApiError(404, 'no_such_upload', 'there is no such upload');
    return upload;
  }

  async #commit(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const paths: string[] = [];
    const commit = this.commits.push(paths) - 1;
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    for await (const { entry, nar } of decodeCommit(request)) {
      paths.push(entry.path);
      const pieces: Buffer[] = [];
      if (nar !== undefined) for await (const piece of nar) if (this.keep) pieces.push(piece);
      const result = this.judge(entry) ?? this.#publish(entry, Buffer.concat(pieces), commit);
      response.write(`${JSON.stringify(result)}\n`);
    }
    response.end();
  }

  #publish(entry: CommitEntry, inline: Buffer, commit: number): CommitResult {
    const { path } = entry;
    const hash = hashOf(path);
    if (this.entries.has(hash)) return { path, result: 'present' };
    const absent = entry.references.find((name) => !this.entries.has(hashOf(name)) && hashOf(name) !== hash);
    if (absent !== undefined) {
      return { path, result: 'refused', code: 'missing_reference', message: `${absent} is not there` };
    }
    let file = inline;
    if (entry.upload !== undefined) {
      const { parts } = this.#upload(entry.upload);
      file = Buffer.concat([...parts].sort(([a], [b]) => a - b).map(([, bytes]) => bytes));
      this.uploads.delete(entry.upload);
    }
    this.entries.set(hash, { entry, file, commit });
    return { path, result: 'published' };
  }
}

/** Of a store path, with or without its directory. */
export function hashOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1).slice(0, 32);
}

export function fail(response: ServerResponse, error: unknown): void {
  const problem = error instanceof ApiError ? error : new ApiError(500, 'broken', String(error));
  if (response.headersSent) response.end(`${JSON.stringify(problem.toProblem())}\n`);
  else reply(response, problem.toProblem(), problem.status);
}

function reply(response: ServerResponse, value: object, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
}

async function readAll(source: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of source) pieces.push(piece);
  return Buffer.concat(pieces);
}
