import { stripVTControlCharacters } from 'node:util';
import { StoreError } from '../../errors.ts';
import { MAX_LIST, protocolError, type WireReader } from './wire.ts';

/** What the daemon can say before, or in place of, a reply. */
export const MESSAGE = {
  next: 0x6f6c6d67,
  write: 0x64617416,
  last: 0x616c7473,
  error: 0x63787470,
  startActivity: 0x53545254,
  stopActivity: 0x53544f50,
  result: 0x52534c54,
} as const;

/** Errors carry a level and a trace from here on. */
const STRUCTURED_ERRORS = 0x11a;

/** Passes over logs and progress until the reply begins. @throws StoreError what the daemon says instead */
export async function readMessages(reader: WireReader, version: number): Promise<void> {
  for (;;) {
    const word = await reader.number();
    switch (word) {
      case MESSAGE.last:
        return;
      case MESSAGE.error:
        throw await readError(reader, version);
      case MESSAGE.next:
      case MESSAGE.write:
        await reader.text();
        break;
      case MESSAGE.startActivity:
        await reader.skip(24); // id, level, type
        await reader.text();
        await skipFields(reader);
        await reader.skip(8); // parent
        break;
      case MESSAGE.stopActivity:
        await reader.skip(8);
        break;
      case MESSAGE.result:
        await reader.skip(16); // id, type
        await skipFields(reader);
        break;
      default:
        throw protocolError(`it sent the unknown message 0x${word.toString(16)}`);
    }
  }
}

/** What follows {@link MESSAGE.error}: an error of the operation, after which the connection stays usable. */
export async function readError(reader: WireReader, version: number): Promise<DaemonError> {
  if (version < STRUCTURED_ERRORS) {
    const message = await reader.text();
    await reader.skip(8); // exit status
    return new DaemonError(message);
  }
  await reader.text(); // always 'Error'
  await reader.skip(8); // level
  await reader.text(); // name
  const message = await reader.text();
  await reader.skip(8); // position, never there
  const traces = await reader.number();
  if (traces > MAX_LIST) throw protocolError(`a trace of ${traces} entries is too long`);
  for (let i = 0; i < traces; i++) {
    await reader.skip(8);
    await reader.text();
  }
  return new DaemonError(message);
}

/** The daemon refuses an operation, in its own words. */
export class DaemonError extends StoreError {
  constructor(message: string) {
    const line = stripVTControlCharacters(message)
      .replace(/^(error:\s*)+/, '')
      .replace(/\s*\n\s*/g, ' ')
      .trim();
    super('daemon_error', `the Nix daemon says: ${line}`);
  }
}

async function skipFields(reader: WireReader): Promise<void> {
  const count = await reader.number();
  if (count > MAX_LIST) throw protocolError(`a message of ${count} fields is too long`);
  for (let i = 0; i < count; i++) {
    const type = await reader.number();
    if (type === 0) await reader.skip(8);
    else if (type === 1) await reader.text();
    else throw protocolError(`a field has the unknown type ${type}`);
  }
}
