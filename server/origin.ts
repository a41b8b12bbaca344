import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { type Logger, pino } from 'pino';
import { listen } from '../api/http/listen.ts';
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
    const url = await listen(server, options, 'origin');
    const housekeeping = setInterval(() => {
      dropIdleUploads(catalogue, blobs).catch((error) => logger.error({ err: error }, 'housekeeping failed'));
    }, HOUSEKEEPING_MS).unref();
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
