import { readFile, stat } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** What an upstream does instead of answering properly. */
export interface Fault {
  /** Answers with this status. */
  status?: number;
  /** Waits so many milliseconds first. */
  delay?: number;
  /** Answers 200 with this text. */
  body?: string;
  /** Closes the connection once so many bytes of the file were sent. */
  cutAt?: number;
  /** Takes Range for nothing: answers 200 with the whole file. */
  ignoreRange?: boolean;
  /** Turns one bit of the byte at this position of the file; counted from the end where negative. */
  flipAt?: number;
  /** Sends no Content-Length. */
  chunked?: boolean;
  /** Sends the file in blocks of 64 KiB with so many milliseconds in between. */
  slow?: number;
}

export interface UpstreamRequest {
  readonly method: string;
  readonly url: string;
  readonly range: string | undefined;
  readonly authorization: string | undefined;
}

/** An ordinary binary cache over HTTP: the files of a directory, and faults on demand. */
export interface TestUpstream {
  readonly url: string;
  readonly port: number;
  /** Everything that was asked for, oldest first. */
  readonly requests: UpstreamRequest[];
  /** Decides on each request; undefined answers properly. */
  fault: (request: UpstreamRequest) => Fault | undefined;
  /** Stops listening and cuts all connections; a second call does nothing. */
  close(): Promise<void>;
}

export async function startUpstream(dir: string, port = 0): Promise<TestUpstream> {
  const sockets = new Set<Socket>();
  const server = createServer((request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const taken = (server.address() as AddressInfo).port;

  const upstream: TestUpstream = {
    url: `http://127.0.0.1:${taken}`,
    port: taken,
    requests: [],
    fault: () => undefined,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const asked: UpstreamRequest = {
      method: request.method ?? '',
      url: request.url ?? '',
      range: request.headers.range,
      authorization: request.headers.authorization,
    };
    upstream.requests.push(asked);
    const fault = upstream.fault(asked) ?? {};
    if (fault.delay !== undefined) await sleep(fault.delay);
    if (fault.status !== undefined) {
      response.writeHead(fault.status).end('no\n');
      return;
    }
    if (fault.body !== undefined) {
      response.writeHead(200).end(fault.body);
      return;
    }
    const path = join(dir, new URL(asked.url, 'http://x').pathname);
    const known = await stat(path).catch(() => undefined);
    if (!known?.isFile()) {
      response.writeHead(404).end('no\n');
      return;
    }
    const file = await readFile(path);
    if (fault.flipAt !== undefined) {
      const at = fault.flipAt < 0 ? file.length + fault.flipAt : fault.flipAt;
      file[at] = (file[at] as number) ^ 1;
    }
    const first = fault.ignoreRange ? undefined : /^bytes=(\d+)-$/.exec(asked.range ?? '')?.[1];
    const start = Number(first ?? 0);
    const headers: Record<string, string | number> = {};
    if (!fault.chunked) headers['content-length'] = file.length - start;
    if (first !== undefined) headers['content-range'] = `bytes ${start}-${file.length - 1}/${file.length}`;
    response.writeHead(first === undefined ? 200 : 206, headers);
    const end = Math.min(fault.cutAt ?? file.length, file.length);
    const block = fault.slow === undefined ? file.length : 64 << 10;
    for (let at = start; at < end; at += block) {
      await new Promise<void>((resolve, reject) =>
        response.write(file.subarray(at, Math.min(at + block, end)), (error) =>
          error ? reject(error) : resolve(),
        ),
      );
      if (fault.slow !== undefined) await sleep(fault.slow);
    }
    if (end < file.length) response.destroy();
    else response.end();
  }

  return upstream;
}
