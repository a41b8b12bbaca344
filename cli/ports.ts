import { BcacheError } from '../nix/errors.ts';

/** A port from the environment. @throws BcacheError */
export function portFrom(env: NodeJS.ProcessEnv, name: string): number | undefined {
  const text = env[name];
  if (!text) return undefined;
  const port = Number(text);
  if (/^[0-9]+$/.test(text) && port <= 65_535) return port;
  throw new BcacheError('bad_config', `${name} is '${text}', which is not a port`);
}
