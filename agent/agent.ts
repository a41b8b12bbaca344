import { type Logger, pino } from 'pino';
import { listen } from '../api/http/listen.ts';
import { createServer } from './substituter/server.ts';
import { Substituter } from './substituter/substituter.ts';
import { Upstream, type UpstreamOptions } from './substituter/upstream.ts';
import { Upstreams } from './substituter/upstreams.ts';

export interface AgentOptions {
  /** Everything the agent keeps is below this directory. */
  readonly stateDir: string;
  readonly host: string;
  /** 0 takes any free port. */
  readonly port: number;
  /** The caches to ask, and the keys each is trusted with. */
  readonly upstreams: readonly UpstreamOptions[];
  /** Bytes that the kept NAR files may take; the least recently used go first. Default: no bound. */
  readonly cacheBytes?: number;
  readonly logger?: Logger;
}

export interface RunningAgent {
  /** `http://host:port`, the address for Nix's `substituters`. */
  readonly url: string;
  close(): Promise<void>;
}

/**
 * Starts the agent. It listens before it opens its state, so that Nix is never refused a connection for long.
 *
 * @throws BcacheError bad_upstream, port_taken, cannot_listen, state_unusable, state_in_use
 */
export async function startAgent(options: AgentOptions): Promise<RunningAgent> {
  const logger = options.logger ?? pino({ enabled: false });
  const upstreams = new Upstreams(
    options.upstreams.map((upstream) => new Upstream(upstream)),
    logger,
  );
  const opened = Promise.withResolvers<Substituter>();
  // A request that waits for it answers 404; nobody waiting is no failure.
  opened.promise.catch(() => {});
  const server = createServer(upstreams, opened.promise, logger);
  try {
    const url = await listen(server, options, 'agent');
    const substituter = Substituter.open(options, upstreams, logger);
    opened.resolve(substituter);
    logger.info({ url, upstreams: upstreams.all.map((upstream) => upstream.url) }, 'the agent listens');
    return {
      url,
      close: async () => {
        await server.close();
        await substituter.close();
      },
    };
  } catch (error) {
    opened.reject(error);
    await server.close();
    await upstreams.close();
    throw error;
  }
}
