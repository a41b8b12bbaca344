import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { type Dispatcher, request } from 'undici';
import { type AgentOptions, type RunningAgent, startAgent } from '../../agent/agent.ts';
import { SyntheticCache } from './synthetic-cache.ts';
import { startUpstream, type TestUpstream } from './upstream.ts';

interface Teardown {
  teardown(handler: () => unknown): void;
}

export interface Answer {
  readonly status: number;
  readonly headers: Dispatcher.ResponseData['headers'];
  readonly body: Buffer;
}

/** A temporary directory for one test. */
export function temporaryDirectory(t: Teardown): string {
  const dir = mkdtempSync(join(tmpdir(), 'bcache-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** One GET, or another method, read to its end. */
export async function get(
  url: string,
  headers: Record<string, string> = {},
  method: Dispatcher.HttpMethod = 'GET',
): Promise<Answer> {
  const response = await request(url, { method, headers });
  return {
    status: response.statusCode,
    headers: response.headers,
    body: Buffer.from(await response.body.arrayBuffer()),
  };
}

/** An agent that starts, stops and starts again over one state directory, and what it logged. */
export class AgentUnderTest {
  readonly stateDir: string;
  readonly log: { level: number; msg: string; reason?: string; [key: string]: unknown }[] = [];
  #running: RunningAgent | undefined;
  readonly #options: Partial<AgentOptions>;

  constructor(t: Teardown, options: Partial<AgentOptions>) {
    this.stateDir = temporaryDirectory(t);
    this.#options = options;
    t.teardown(() => this.stop());
  }

  get url(): string {
    if (this.#running === undefined) throw new Error('the agent is not running');
    return this.#running.url;
  }

  async start(options: Partial<AgentOptions> = {}): Promise<this> {
    const logger = pino({ level: 'debug' }, { write: (line) => this.log.push(JSON.parse(line)) });
    this.#running = await startAgent({
      stateDir: this.stateDir,
      host: '127.0.0.1',
      port: 0,
      upstreams: [],
      logger,
      ...this.#options,
      ...options,
    });
    return this;
  }

  async stop(): Promise<void> {
    const running = this.#running;
    this.#running = undefined;
    await running?.close();
  }

  async restart(options: Partial<AgentOptions> = {}): Promise<void> {
    await this.stop();
    await this.start(options);
  }

  get(
    path: string,
    headers: Record<string, string> = {},
    method: Dispatcher.HttpMethod = 'GET',
  ): Promise<Answer> {
    return get(`${this.url}/${path}`, headers, method);
  }

  /** The lines of the log with this message. */
  logged(message: string): AgentUnderTest['log'] {
    return this.log.filter((line) => line.msg === message);
  }

  /** The names of the NAR files that are kept. */
  kept(): string[] {
    return this.#files('nar');
  }

  /** The names of the files that are still arriving. */
  arriving(): string[] {
    return this.#files('tmp');
  }

  #files(folder: string): string[] {
    return readdirSync(join(this.stateDir, 'cache', folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => entry.name);
  }
}

/** A synthetic cache, an upstream that serves it, and a running agent that asks it. */
export async function startChain(
  t: Teardown,
  options: Partial<AgentOptions> = {},
): Promise<{ cache: SyntheticCache; upstream: TestUpstream; agent: AgentUnderTest }> {
  const cache = new SyntheticCache(temporaryDirectory(t));
  const upstream = await startUpstream(cache.dir);
  t.teardown(() => upstream.close());
  const upstreams = [{ url: upstream.url, publicKeys: [cache.publicKey] }];
  const agent = await new AgentUnderTest(t, { upstreams, ...options }).start();
  return { cache, upstream, agent };
}

/** Waits until `condition` holds; fails after `timeout` milliseconds. */
export async function until(condition: () => boolean, timeout = 5_000): Promise<void> {
  const end = performance.now() + timeout;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`${condition} did not come true`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
