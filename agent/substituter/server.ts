import Fastify, { type FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { notFound } from '../../api/http/not-found.ts';
import { cacheInfoRoute } from './routes/cache-info.ts';
import { homeRoute } from './routes/home.ts';
import { narRoute } from './routes/nar.ts';
import { narInfoRoute } from './routes/narinfo.ts';
import type { Substituter } from './substituter.ts';
import type { Upstreams } from './upstreams.ts';

/** Nix drops a connection that was idle for 90 s; the agent must not be the first to. */
const KEEP_ALIVE_MS = 120_000;

/**
 * The HTTP side of the substituter. Requests that come before `opened` wait for it, all but nix-cache-info.
 *
 * Whatever goes wrong is a 404: to Nix that means "ask elsewhere", while 400, 401, 429 and 5xx fail builds.
 */
export function createServer(
  upstreams: Upstreams,
  opened: Promise<Substituter>,
  logger: Logger,
): FastifyInstance {
  const server = Fastify({
    keepAliveTimeout: KEEP_ALIVE_MS,
    forceCloseConnections: true,
    frameworkErrors: (_error, _request, reply) => notFound(reply),
  });
  server.addHook('onRequest', async (request, reply) => {
    if (request.method === 'GET' || request.method === 'HEAD') return;
    // The body is not read, so the connection cannot be used again.
    return reply
      .code(405)
      .header('allow', 'GET, HEAD')
      .header('connection', 'close')
      .type('text/plain')
      .send('this cache is read-only: push with bcache push\n');
  });
  server.setNotFoundHandler((_request, reply) => notFound(reply));
  server.setErrorHandler((error, request, reply) => {
    logger.error({ err: error, url: request.url.slice(0, 200) }, 'a request failed');
    return notFound(reply);
  });
  server.register(homeRoute);
  server.register(cacheInfoRoute(upstreams));
  server.register(narInfoRoute(opened));
  server.register(narRoute(opened));
  return server;
}
