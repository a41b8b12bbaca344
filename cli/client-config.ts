import { readClientState, stateDir } from './state.ts';

export interface ClientConfig {
  /** The origin, without a path. */
  readonly url: string;
  readonly token: string | undefined;
}

/**
 * Which origin the client talks to and as whom: `BCACHE_ORIGIN_URL` and `BCACHE_AUTH_TOKEN`, else what
 * `bcache start` left in the state directory. Its token goes to its own origin only.
 */
export function readClientConfig(env: NodeJS.ProcessEnv): ClientConfig {
  const started = readClientState(stateDir(env));
  const url = env.BCACHE_ORIGIN_URL || started?.url || `http://127.0.0.1:${env.BCACHE_ORIGIN_PORT || 8470}`;
  const token = env.BCACHE_AUTH_TOKEN || (started?.url === url ? started.token : undefined);
  return { url, token };
}
