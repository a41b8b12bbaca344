import { parseStoreDir, type StoreDir } from '../../nix/store-path.ts';

/** What an `nix-cache-info` says that matters to the agent. */
export interface CacheInfo {
  readonly storeDir: StoreDir | undefined;
  /** Lower is asked first. Nix takes 0 where the document names none. */
  readonly priority: number;
}

/** Larger documents are not read. */
export const MAX_CACHE_INFO_BYTES = 64 << 10;

export const CACHE_INFO_TYPE = 'text/x-nix-cache-info';

/**
 * The agent's own priority. It must come before what it stands for, and caches say 30 to 50
 * (cache.nixos.org 40); not 0, so that something still nearer can be put before it.
 */
const AGENT_PRIORITY = 10;

/** Reads as leniently as Nix: unknown keys and lines without a colon do not matter. */
export function parseCacheInfo(text: string): CacheInfo {
  const fields = new Map<string, string>();
  for (const line of text.split('\n')) {
    const colon = line.indexOf(':');
    if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 1).trim());
  }
  const storeDir = fields.get('StoreDir');
  const priority = Number(fields.get('Priority') ?? 0);
  return {
    storeDir: storeDir === undefined ? undefined : parseStoreDir(storeDir),
    priority: Number.isSafeInteger(priority) ? priority : 0,
  };
}

/** The agent's answer; without a store directory it fits every client. */
export function renderCacheInfo(storeDir: StoreDir | undefined): string {
  const first = storeDir === undefined ? '' : `StoreDir: ${storeDir}\n`;
  return `${first}WantMassQuery: 1\nPriority: ${AGENT_PRIORITY}\n`;
}

/** The one store directory that all of `infos` name; undefined when one is unknown or says another. */
export function commonStoreDir(infos: readonly (CacheInfo | undefined)[]): StoreDir | undefined {
  const [first] = infos;
  return infos.every((info) => info?.storeDir === first?.storeDir) ? first?.storeDir : undefined;
}
