import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const BCACHE = fileURLToPath(new URL('../../cli/bcache.ts', import.meta.url));

export interface Teardown {
  teardown(fn: () => unknown): void;
}

/** A process of bcache, and all it wrote. */
export class Bcache {
  readonly child: ChildProcess;
  output = '';

  constructor(args: readonly string[], env: NodeJS.ProcessEnv) {
    this.child = spawn(process.execPath, [BCACHE, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    const keep = (chunk: Buffer) => {
      this.output += chunk;
    };
    this.child.stdout?.on('data', keep);
    this.child.stderr?.on('data', keep);
  }

  /** Waits for words in its output. */
  async says(words: string | RegExp): Promise<void> {
    const end = Date.now() + 60_000;
    while (typeof words === 'string' ? !this.output.includes(words) : !words.test(this.output)) {
      if (this.child.exitCode !== null || Date.now() > end) throw new Error(`bcache said: ${this.output}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async stop(signal: NodeJS.Signals = 'SIGINT'): Promise<number | null> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return this.child.exitCode;
    this.child.kill(signal);
    await once(this.child, 'exit');
    return this.child.exitCode;
  }
}

export interface Service {
  readonly start: Bcache;
  readonly state: string;
  readonly originUrl: string;
  readonly agentUrl: string;
  readonly publicKey: string;
  readonly token: string;
  /** What a client of this service needs in its environment. */
  readonly env: NodeJS.ProcessEnv;
}

/** Runs `bcache start` on free ports with a state directory of its own. */
export async function startService(t: Teardown): Promise<Service> {
  const state = mkdtempSync(join(tmpdir(), 'bcache-service-'));
  const [originPort, agentPort] = [await freePort(), await freePort()];
  const env = {
    BCACHE_STATE: state,
    BCACHE_ORIGIN_PORT: String(originPort),
    BCACHE_AGENT_PORT: String(agentPort),
  };
  const start = new Bcache(['start'], { ...process.env, ...env });
  t.teardown(async () => {
    await start.stop();
    rmSync(state, { recursive: true, force: true });
  });
  await start.says('Ctrl-C stops both');
  const { url, token } = JSON.parse(readFileSync(join(state, 'client.json'), 'utf8'));
  const publicKey = /extra-trusted-public-keys = (\S+)/.exec(start.output)?.[1] as string;
  return { start, state, originUrl: url, agentUrl: `http://127.0.0.1:${agentPort}`, publicKey, token, env };
}

export async function freePort(): Promise<number> {
  const server = createTcpServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Passes requests on to `target` and notes each as `METHOD path`. */
export async function countingProxy(
  t: Teardown,
  target: string,
): Promise<{ url: string; requests: string[] }> {
  const requests: string[] = [];
  const server = createServer((incoming, response) => {
    requests.push(`${incoming.method} ${incoming.url}`);
    const { method, headers } = incoming;
    const outgoing = request(new URL(incoming.url as string, target), { method, headers }, (answer) => {
      response.writeHead(answer.statusCode as number, answer.headers);
      answer.pipe(response);
    });
    outgoing.on('error', () => response.destroy());
    incoming.pipe(outgoing);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}
