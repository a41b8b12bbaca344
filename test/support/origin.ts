import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { type OutgoingHttpHeaders, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { zstdCompressSync } from 'node:zlib';
import { type CacheName, parseCacheName } from '../../api/cache-name.ts';
import { OriginClient } from '../../api/client.ts';
import type { CommitEntry, CommitResult, Permission } from '../../api/schemas.ts';
import { encodeBase32 } from '../../nix/base32.ts';
import { formatSha256, type Sha256, sha256FromBytes } from '../../nix/hash.ts';
import { generateSecretKey, type PublicKey } from '../../nix/keys.ts';
import {
  DEFAULT_STORE_DIR,
  fullPath,
  hashPart,
  parseStorePath,
  type StorePath,
  type StorePathHash,
} from '../../nix/store-path.ts';
import { hashToken, newToken } from '../../server/auth.ts';
import { type OriginOptions, type RunningOrigin, startOrigin } from '../../server/origin.ts';
import { narOfFile } from './synthetic-cache.ts';

export interface Teardown {
  teardown(fn: () => unknown): void;
}

/** A path as a push sends it. */
export interface Sent {
  readonly path: StorePath;
  readonly hash: StorePathHash;
  readonly narHash: Sha256;
  /** The compressed NAR. */
  readonly file: Buffer;
  readonly entry: CommitEntry;
}

export function sha256(bytes: Buffer): Sha256 {
  return sha256FromBytes(createHash('sha256').update(bytes).digest());
}

/** A store path with a hash of chance, whose NAR is one file with `contents`. */
export function sent(
  contents: string | Buffer,
  options: { path?: StorePath; references?: readonly StorePath[]; entry?: Partial<CommitEntry> } = {},
): Sent {
  const nar = narOfFile(Buffer.from(contents));
  const path = options.path ?? parseStorePath(`${encodeBase32(randomBytes(20))}-thing`);
  const narHash = sha256(nar);
  return {
    path,
    hash: hashPart(path),
    narHash,
    file: zstdCompressSync(nar),
    entry: {
      path: fullPath(DEFAULT_STORE_DIR, path),
      narHash: formatSha256(narHash),
      narSize: nar.length,
      references: [...(options.references ?? [])],
      signatures: [],
      ...options.entry,
    },
  };
}

/** A real origin on a state directory of its own, with the cache `main` and a token that may read and push. */
export class TestOrigin {
  readonly main: CacheName = parseCacheName('main');
  readonly stateDir: string;
  readonly #options: Partial<OriginOptions>;
  readonly #clients: OriginClient[] = [];
  #running: RunningOrigin | undefined;
  #token = '';

  private constructor(stateDir: string, options: Partial<OriginOptions>) {
    this.stateDir = stateDir;
    this.#options = options;
  }

  static async start(t: Teardown, options: Partial<OriginOptions> = {}): Promise<TestOrigin> {
    const stateDir = options.stateDir ?? temporaryDirectory(t);
    const origin = new TestOrigin(stateDir, options);
    t.teardown(() => origin.stop());
    await origin.resume();
    await origin.createCache('main');
    origin.#token = await origin.createToken(['read', 'push']);
    return origin;
  }

  get running(): RunningOrigin {
    if (this.#running === undefined) throw new Error('the origin was stopped');
    return this.#running;
  }

  get url(): string {
    return this.running.url;
  }

  /** Starts it again on the same state directory. */
  async resume(): Promise<void> {
    this.#running = await startOrigin({
      stateDir: this.stateDir,
      host: '127.0.0.1',
      port: 0,
      ...this.#options,
    });
  }

  async stop(): Promise<void> {
    await Promise.all(this.#clients.splice(0).map((client) => client.close()));
    await this.#running?.close();
    this.#running = undefined;
  }

  async createCache(name: string, isPublic = true): Promise<{ name: CacheName; publicKey: PublicKey }> {
    const key = generateSecretKey(`${name}-1`);
    const cache = { name: parseCacheName(name), public: isPublic, priority: 30, key };
    await this.running.catalogue.createCache(cache);
    return { name: cache.name, publicKey: key.publicKey };
  }

  /** The secret of a new token. */
  async createToken(
    permissions: readonly Permission[],
    options: { caches?: readonly string[]; expiresAt?: Date } = {},
  ): Promise<string> {
    const secret = newToken();
    await this.running.catalogue.createToken({
      name: 'test',
      user: 'tester',
      hash: hashToken(secret),
      permissions,
      caches: options.caches ?? ['*'],
      expiresAt: options.expiresAt,
    });
    return secret;
  }

  /** With the token that may read and push, unless another is given; null sends none. */
  client(token: string | null = this.#token): OriginClient {
    const client = new OriginClient({ url: this.url, token: token ?? undefined, userAgent: 'test' });
    this.#clients.push(client);
    return client;
  }

  authorization(token: string = this.#token): { authorization: string } {
    return { authorization: `Bearer ${token}` };
  }

  /** Commits all in one request, each with its NAR inside unless its entry names an upload. */
  push(items: readonly Sent[], cache: CacheName = this.main): Promise<CommitResult[]> {
    const body = items.map(({ entry, file }) => ({
      entry,
      nar: entry.upload === undefined ? [file] : undefined,
    }));
    return Array.fromAsync(this.client().commit(cache, body));
  }

  /** Sends a request as it is: the path is not made normal. */
  request(
    path: string,
    options: { method?: string; headers?: OutgoingHttpHeaders; body?: string | Buffer } = {},
  ): Promise<Answer> {
    return rawRequest(this.url, path, options);
  }

  /** Names of the files below `staging/` and `blobs/`. */
  files(): { staging: string[]; blobs: string[] } {
    const below = (directory: string) =>
      readdirSync(join(this.stateDir, directory), { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => entry.name)
        .sort();
    return { staging: below('staging'), blobs: below('blobs') };
  }
}

export interface Answer {
  readonly status: number;
  readonly headers: NodeJS.Dict<string | string[]>;
  readonly body: Buffer;
}

function rawRequest(
  url: string,
  path: string,
  {
    method = 'GET',
    headers = {},
    body,
  }: { method?: string; headers?: OutgoingHttpHeaders; body?: string | Buffer },
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const call = request(url, { path, method, headers, agent: false }, (response) => {
      Array.fromAsync<Buffer>(response).then(
        (chunks) =>
          resolve({
            status: response.statusCode as number,
            headers: response.headers,
            body: Buffer.concat(chunks),
          }),
        reject,
      );
    });
    call.on('error', reject);
    call.end(body);
  });
}

export function temporaryDirectory(t: Teardown): string {
  const directory = mkdtempSync(join(tmpdir(), 'origin-'));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** Waits until `condition` holds, for 10 s at most; says whether it does. */
export async function eventually(condition: () => boolean): Promise<boolean> {
  for (const end = Date.now() + 10_000; Date.now() < end; ) {
    if (condition()) return true;
    await delay(20);
  }
  return condition();
}
