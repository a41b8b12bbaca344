import { Readable } from 'node:stream';
import { pack } from 'tar-stream';
import { hashOf } from './commit-body.ts';
import type { CommitEntry } from './schemas.ts';

/** The body for `items`, as a stream of known length. `nar`: the compressed NAR, in pieces. */
export function encodeCommit(items: Iterable<{ entry: CommitEntry; nar?: readonly Buffer[] | undefined }>): {
  body: Readable;
  bytes: number;
} {
  const tar = pack({});
  let bytes = 1024; // the two empty blocks that end a tar stream
  for (const { entry, nar } of items) {
    const hash = hashOf(entry);
    const json = Buffer.from(JSON.stringify(entry));
    tar.entry({ name: `${hash}.json` }, json);
    bytes += 512 + padded(json.length);
    if (nar === undefined) continue;
    const size = nar.reduce((sum, piece) => sum + piece.length, 0);
    const sink = tar.entry({ name: `${hash}.nar.zst`, size });
    for (const piece of nar) sink.write(piece);
    sink.end(undefined);
    bytes += 512 + padded(size);
  }
  tar.finalize();
  return { body: Readable.from(tar), bytes };
}

function padded(size: number): number {
  return Math.ceil(size / 512) * 512;
}
