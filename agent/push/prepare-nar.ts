import { StoreError } from '../../nix/errors.ts';
import { freeNow } from '../../nix/free-now.ts';
import { fullPath } from '../../nix/store-path.ts';
import type { Dump } from './dump-workers.ts';
import type { PushPath, ReadyNar } from './graph.ts';
import type { PartUpload, PartUploads } from './part-upload.ts';

/** A NAR that compresses to more than this travels as an upload, in parts. */
const INLINE_BYTES = 4 << 20;

export interface PreparedNar {
  readonly nar: ReadyNar;
  /** Where the NAR is large: its upload, whose last parts may be on their way. */
  readonly upload: PartUpload | undefined;
}

/**
 * Reads a dump to its end: small NARs are kept, large ones sent. Gives up as soon as the path is no longer
 * to be pushed.
 *
 * @param onRead told of each frame how many bytes of the NAR it holds
 * @throws StoreError `nar_mismatch`, or that the path cannot be read; ApiError; UploadLost
 */
export async function prepareNar(
  path: PushPath,
  dump: Dump,
  uploads: PartUploads,
  onRead: (narBytes: number) => void,
): Promise<PreparedNar> {
  let inline: Buffer[] = [];
  let fileSize = 0;
  let upload: PartUpload | undefined;
  try {
    for await (const { bytes, narBytes } of dump.frames()) {
      if (path.state !== 'dumping') throw new StoreError('push_cancelled', 'a path it needs has failed');
      onRead(narBytes);
      fileSize += bytes.length;
      inline.push(bytes);
      if (fileSize <= INLINE_BYTES) continue;
      upload ??= await uploads.open(path.path, path.info.narHash);
      for (const frame of inline) {
        await upload.write(frame);
        freeNow(frame.buffer);
      }
      inline = [];
    }
    checkDigest(path, dump);
  } catch (error) {
    upload?.cancel();
    throw error;
  }
  upload?.end();
  const { narSize } = dump.digest;
  return {
    nar: upload === undefined ? { inline, fileSize, narSize } : { upload: upload.id, fileSize, narSize },
    upload,
  };
}

function checkDigest({ info }: PushPath, dump: Dump): void {
  const { narHash, narSize } = dump.digest;
  // Nix has not registered the size of paths from its earliest versions.
  if (narHash === info.narHash && (info.narSize === 0 || narSize === info.narSize)) return;
  throw new StoreError(
    'nar_mismatch',
    `the contents of ${fullPath(info.storeDir, info.path)} do not match what Nix registered`,
    { hint: 'Run `nix-store --verify --check-contents --repair`.' },
  );
}
