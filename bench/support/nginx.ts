import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findProgram } from './nix.ts';
import { freePort, type Processes, untilAnswers } from './processes.ts';

/** The absolute path of nginx; undefined where it is not installed. */
export async function findNginx(): Promise<string | undefined> {
  // Debian keeps it where only root's PATH looks.
  process.env.PATH = `${process.env.PATH ?? ''}:/usr/sbin`;
  return findProgram('nginx').catch(() => undefined);
}

/**
 * Starts nginx over a binary cache that `nix copy --to file://` wrote.
 *
 * @param prefix directory for its own files.
 */
export async function serveStatic(
  processes: Processes,
  nginx: string,
  directory: string,
  prefix: string,
): Promise<{ readonly url: string; stop(): Promise<void> }> {
  await mkdir(prefix, { recursive: true });
  const port = await freePort();
  const config = join(prefix, 'nginx.conf');
  // Workers of a root's nginx would run as a user who may not read the directory.
  const user = process.getuid?.() === 0 ? 'user root root;' : '';
  await writeFile(
    config,
    `${user}
daemon off;
pid ${prefix}/pid;
error_log stderr warn;
worker_processes auto;
events {}
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  default_type application/octet-stream;
  client_body_temp_path ${prefix}/body;
  proxy_temp_path ${prefix}/proxy;
  fastcgi_temp_path ${prefix}/fastcgi;
  uwsgi_temp_path ${prefix}/uwsgi;
  scgi_temp_path ${prefix}/scgi;
  server {
    listen 127.0.0.1:${port};
    root "${directory}";
  }
}
`,
  );
  const child = processes.start(nginx, ['-e', 'stderr', '-p', prefix, '-c', config], process.env);
  const url = `http://127.0.0.1:${port}`;
  await untilAnswers(`${url}/nix-cache-info`, child);
  return { url, stop: () => processes.stop(child) };
}
