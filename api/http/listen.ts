import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { BcacheError } from '../../nix/errors.ts';

export interface ListenOptions {
  readonly host: string;
  /** 0 takes any free port. */
  readonly port: number;
}

/**
 * Makes a server listen.
 *
 * @param name of what listens, for the messages
 * @returns its address, `http://host:port`
 * @throws BcacheError `port_taken`, `cannot_listen`
 */
export async function listen(
  server: FastifyInstance,
  { host, port }: ListenOptions,
  name: 'agent' | 'origin',
): Promise<string> {
  try {
    await server.listen({ host, port });
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'EADDRINUSE') {
      throw new BcacheError('port_taken', `port ${port} on ${host} is taken`, {
        hint: `Another ${name} may be running already; else choose another port.`,
        cause,
      });
    }
    throw new BcacheError('cannot_listen', `the ${name} cannot listen on ${host}, port ${port}`, {
      hint: 'Choose an address of this machine and a port above 1023.',
      cause,
    });
  }
  const bound = server.server.address() as AddressInfo;
  return `http://${bound.family === 'IPv6' ? `[${bound.address}]` : bound.address}:${bound.port}`;
}
