import Fastify, { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify';
import type { Logger } from 'pino';
import { notFound } from '../api/http/not-found.ts';
import type { BlobStore } from './blobs/blob-store.ts';
import type { Catalogue } from './catalogue/catalogue.ts';
import type { Ingest } from './ingest/ingest.ts';
import { cacheRoutes } from './routes/api/caches.ts';
import { pushRoutes } from './routes/api/push.ts';
import { userRoute } from './routes/api/user.ts';
import { problemErrors, sendProblem, toApiError } from './routes/errors.ts';
import { cacheInfoRoute } from './routes/nix/cache-info.ts';
import { narRoute } from './routes/nix/nar.ts';
import { narInfoRoute } from './routes/nix/narinfo.ts';

/** Nix drops a connection that was idle for 90 s; the origin must not be the first to. */
const KEEP_ALIVE_MS = 120_000;
const API = '/api/v1';

export interface ServerParts {
  readonly catalogue: Catalogue;
  readonly blobs: BlobStore;
  readonly ingest: Ingest;
  /** Requests to `<cache>.<domain>` are for that cache. */
  readonly domain: string | undefined;
  readonly logger: Logger;
}

/** The HTTP side of the origin: caches at `/{cache}/…` and `<cache>.<domain>`, the API at `/api/v1`. */
export function createServer({ catalogue, blobs, ingest, domain, logger }: ServerParts): FastifyInstance {
  const server = Fastify({
    loggerInstance: logger as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    keepAliveTimeout: KEEP_ALIVE_MS,
    forceCloseConnections: true,
    routerOptions: { ignoreDuplicateSlashes: true, maxParamLength: 300 },
    rewriteUrl: (request) => {
      const url = request.url ?? '/';
      const cache = domain && cacheOfHost(request.headers.host, domain);
      return cache ? `/${cache}${url}` : url;
    },
    // What is no proper request is, to Nix, something that is not here.
    frameworkErrors: (error, request, reply) =>
      request.url.startsWith(API) ? sendProblem(reply, toApiError(error)) : notFound(reply),
  });
  server.setNotFoundHandler((_request, reply) => notFound(reply));
  server.get('/', (_request, reply) => reply.type('text/plain').send('bcache: a binary cache for Nix\n'));
  server.get('/healthz', (_request, reply) => reply.type('text/plain').send('ok\n'));
  server.register(cacheInfoRoute(catalogue));
  server.register(narInfoRoute(catalogue));
  server.register(narRoute(catalogue, blobs));
  server.register(
    (api, _options, done) => {
      problemErrors(api);
      api.register(userRoute(catalogue));
      api.register(cacheRoutes(catalogue));
      api.register(pushRoutes(catalogue, blobs, ingest));
      done();
    },
    { prefix: API },
  );
  return server;
}

function cacheOfHost(host: string | undefined, domain: string): string | undefined {
  const name = host?.replace(/:[0-9]+$/, '').toLowerCase() ?? '';
  if (!name.endsWith(`.${domain}`)) return undefined;
  const label = name.slice(0, -domain.length - 1);
  return /^[a-z0-9-]{1,63}$/.test(label) ? label : undefined;
}
