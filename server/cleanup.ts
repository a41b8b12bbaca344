import type { BlobStore } from './blobs/blob-store.ts';
import type { Catalogue } from './catalogue/catalogue.ts';
import { dropUpload } from './ingest/uploads.ts';

/** An upload that nobody went on with for so long is given up. */
const UPLOAD_IDLE_MS = 24 * 60 * 60 * 1000;

/**
 * Removes what no record names: the leftovers of commits that a crash cut off. Runs before anything is taken
 * in, since what is on its way in has no record either.
 */
export async function removeLeftovers(catalogue: Catalogue, blobs: BlobStore): Promise<{ removed: number }> {
  let removed = 0;
  await dropIdleUploads(catalogue, blobs);
  const staged = await blobs.listStaged();
  const uploads = await catalogue.knownUploads(staged);
  for (const name of staged) {
    if (uploads.has(name)) continue;
    await blobs.discard(name);
    removed++;
  }
  for await (const hashes of blobs.listBlobs()) {
    const known = await catalogue.knownBlobs(hashes);
    for (const hash of hashes) {
      if (known.has(hash)) continue;
      await blobs.delete(hash);
      removed++;
    }
  }
  return { removed };
}

export async function dropIdleUploads(catalogue: Catalogue, blobs: BlobStore): Promise<void> {
  for (const id of await catalogue.idleUploads(new Date(Date.now() - UPLOAD_IDLE_MS))) {
    await dropUpload(catalogue, blobs, id);
  }
}
