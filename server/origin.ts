import { mkdirSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { type Logger, pino } from 'pino';
import { BcacheError } from '../nix/errors.ts';
import { openDiskBlobStore } from './blobs/disk.ts';
import type { Catalogue } from './catalogue/catalogue.ts';
import { openSqliteCatalogue } from './catalogue/sqlite/sqlite-catalogue.ts';
import { dropIdleUploads, removeLeftovers } from './cleanup.ts';
import { Ingest } from './ingest/ingest.ts';
import { Verifier } from './ingest/verifier.ts';
import { createServer } from './server.ts';

export interface OriginOptions {
  /** Everything the origin keeps is below this directory. */
  readonly stateDir: string;
  readonly host: string;
  /** 0 takes any free port. */
  readonly port: number;
  /** Caches are also served at `<cache>.<domain>`. */
  readonly domain?: string | undefined;
  readonly logger?: Logger;
}

export interface RunningOrigin {
  /** `http://host:port` */
  readonly url: string;
  readonly catalogue: Catalogue;
  close(): Promise<void>;
}

const HOUSEKEEPING_MS = 60 * 60 * 1000;

/**
 * Opens the catalogue of the state directory, making both where they are not there yet.
 *
 * @throws BcacheError `state_unusable`, `catalogue_unusable`, `catalogue_too_new`
 */
export function openCatalogue(stateDir: string): Catalogue {
  try {
    mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new BcacheError(
      'state_unusable',
      `cannot use the state directory ${stateDir}: ${(cause as Error).message}`,
      {
        hint: 'choose another directory, or let the user bcache runs as write there',
        cause,
      },
    );
  }
  return openSqliteCatalogue(join(stateDir, 'catalogue.sqlite'));
}

/**
 * Starts the origin.
 *
 * @throws BcacheError as {@link openCatalogue}; `port_taken`, `cannot_listen`
 */
export async function startOrigin(options: OriginOptions): Promise<RunningOrigin> {
  const logger = options.logger ?? pino({ enabled: false });
  const catalogue = openCatalogue(options.stateDir);
  const verifier = new Verifier();
  try {
    const blobs = openDiskBlobStore(options.stateDir);
    const ingest = new Ingest(catalogue, blobs, verifier);
    const server = createServer({ catalogue, blobs, ingest, domain: options.domain, logger });
    const { removed } = await removeLeftovers(catalogue, blobs);
    if (removed > 0) logger.info({ removed }, 'removed files that an earlier run left behind');
    try {
      await server.listen({ host: options.host, port: options.port });
    } catch (cause) {
      throw cannotListen(options, cause);
    }
    const housekeeping = setInterval(() => {
      dropIdleUploads(catalogue, blobs).catch((error) => logger.error({ err: error }, 'housekeeping failed'));
    }, HOUSEKEEPING_MS).unref();
    const { address, port, family } = server.server.address() as AddressInfo;
    const url = `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
    logger.info({ url }, 'the origin listens');
    return {
      url,
      catalogue,
      close: async () => {
        clearInterval(housekeeping);
        await server.close();
        await verifier.close();
        await catalogue.close();
      },
    };
  } catch (error) {
    await verifier.close();
    await catalogue.close();
    throw error;
  }
}

function cannotListen({ host, port }: OriginOptions, cause: unknown): BcacheError {
  if ((cause as NodeJS.ErrnoException).code === 'EADDRINUSE') {
    return new BcacheError('port_taken', `port ${port} on ${host} is taken`, {
      hint: 'Another origin may be running already; else choose another port.',
      cause,
    });
  }
  return new BcacheError('cannot_listen', `the origin cannot listen on ${host}, port ${port}`, {
    hint: 'Choose an address of this machine and a port above 1023.',
    cause,
  });
}
