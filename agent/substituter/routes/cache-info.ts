import type { FastifyPluginCallback } from 'fastify';
import { CACHE_INFO_TYPE } from '../cache-info.ts';
import type { Upstreams } from '../upstreams.ts';

/** GET /nix-cache-info, from memory: without it Nix would not use the agent at all. */
export function cacheInfoRoute(upstreams: Upstreams): FastifyPluginCallback {
  return (server, _options, done) => {
    server.get('/nix-cache-info', (_request, reply) =>
      reply.type(CACHE_INFO_TYPE).send(Buffer.from(upstreams.cacheInfo)),
    );
    done();
  };
}
