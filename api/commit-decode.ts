import type { Readable } from 'node:stream';
import { extract } from 'tar-stream';
import { Compile } from 'typebox/compile';
import { hashOf } from './commit-body.ts';
import { LIMITS } from './limits.ts';
import { ApiError } from './problem.ts';
import { CommitEntry } from './schemas.ts';

const checker = Compile(CommitEntry);
const MAX_ENTRY_BYTES = 16 << 20;

/** One path of a commit as it arrives; read `nar` to its end before asking for the next. */
export interface CommitItem {
  readonly entry: CommitEntry;
  readonly nar: AsyncIterable<Buffer> | undefined;
}

/**
 * Takes a commit's body apart as it comes in.
 *
 * @throws ApiError 400 for anything but the form above, 413 past {@link LIMITS}.
 */
export async function* decodeCommit(body: Readable): AsyncGenerator<CommitItem> {
  const tar = extract();
  body.on('error', (error: Error) => tar.destroy(error));
  body.pipe(tar as unknown as NodeJS.WritableStream);
  let waiting: CommitEntry | undefined;
  let count = 0;
  let bytes = 0;
  try {
    for await (const file of tar) {
      const { name, size } = file.header;
      bytes += size;
      if (bytes > LIMITS.commitBytes) throw tooLarge(`more than ${LIMITS.commitBytes} bytes`);
      const content = file as AsyncIterable<Buffer>;
      if (name.endsWith('.json')) {
        if (waiting !== undefined) throw malformed(`no NAR came for ${waiting.path}`);
        if (++count > LIMITS.commitEntries) throw tooLarge(`more than ${LIMITS.commitEntries} paths`);
        if (size > MAX_ENTRY_BYTES) throw tooLarge(`the entry ${name}`);
        const entry = parseEntry(await readAll(content));
        if (name !== `${hashOf(entry)}.json`) throw malformed(`'${name}' does not belong to ${entry.path}`);
        if (entry.upload === undefined) waiting = entry;
        else yield { entry, nar: undefined };
      } else {
        if (waiting === undefined || name !== `${hashOf(waiting)}.nar.zst`) {
          throw malformed(`'${name.slice(0, 80)}' is not expected here`);
        }
        if (size > LIMITS.inlineNarBytes) throw tooLarge(`the NAR of ${waiting.path}; send it as an upload`);
        const entry = waiting;
        waiting = undefined;
        yield { entry, nar: content };
        file.resume();
      }
    }
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ApiError(400, 'bad_commit', 'the commit is not a whole tar stream', { cause: error });
  }
  if (waiting !== undefined) throw malformed(`no NAR came for ${waiting.path}`);
}

function parseEntry(json: Buffer): CommitEntry {
  let value: unknown;
  try {
    value = JSON.parse(json.toString());
  } catch (cause) {
    throw new ApiError(400, 'bad_commit', 'an entry of the commit is not JSON', { cause });
  }
  if (!checker.Check(value)) {
    const [first] = checker.Errors(value);
    throw malformed(`an entry is malformed: ${first?.instancePath ?? ''} ${first?.message ?? ''}`);
  }
  return value;
}

async function readAll(source: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of source) pieces.push(piece);
  return Buffer.concat(pieces);
}

function malformed(why: string): ApiError {
  return new ApiError(400, 'bad_commit', `the commit is malformed: ${why}`);
}

function tooLarge(what: string): ApiError {
  return new ApiError(413, 'commit_too_large', `the commit is too large: ${what}`);
}
