import type { ServerResponse } from 'node:http';

/** Where the bytes of a body come from. */
export interface ByteSource {
  /** Fills `into` from `position` on, as far as there are bytes. @returns how many were read, 0 at the end */
  read(into: Uint8Array, position: number): Promise<number>;
}

/** Bytes read and written at once. */
const BLOCK = 512 << 10;

/** Buffers between two uses: fresh memory for each NAR would cost more than reading the file. */
const idle: Buffer[] = [];
const MAX_IDLE = 8;

/**
 * Sends the bytes from `start` up to but not including `end`, or to the end, as the body of `response`.
 *
 * Two buffers take turns, one being read into while the other is on its way to the client, so that a large
 * NAR leaves no garbage and a slow client holds no more than these.
 *
 * @throws where the bytes cannot be read, or the client has gone; the response is not ended then
 */
export async function sendBytes(
  bytes: ByteSource,
  start: number,
  end: number | undefined,
  response: ServerResponse,
): Promise<void> {
  const stop = end ?? Number.POSITIVE_INFINITY;
  const buffers = [idle.pop() ?? Buffer.allocUnsafeSlow(BLOCK), idle.pop() ?? Buffer.allocUnsafeSlow(BLOCK)];
  const gone = new Promise<never>((_resolve, reject) => {
    response.on('close', () => reject(new Error('the client closed the connection')));
  });
  gone.catch(() => {});
  let sending: Promise<void> = Promise.resolve();
  for (let position = start, turn = 0; position < stop; turn = 1 - turn) {
    const buffer = buffers[turn] as Buffer;
    const length = await Promise.race([bytes.read(buffer.subarray(0, stop - position), position), gone]);
    await Promise.race([sending, gone]);
    if (length === 0) {
      if (end === undefined) break;
      throw new Error('the file is shorter than it was');
    }
    sending = write(response, buffer.subarray(0, length));
    sending.catch(() => {});
    position += length;
  }
  await Promise.race([sending, gone]);
  response.end();
  // After a failure they may still be read from or written to, and are left alone.
  if (idle.length < MAX_IDLE) idle.push(...buffers);
}

function write(response: ServerResponse, chunk: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    response.write(chunk, (error) => (error ? reject(error) : resolve()));
  });
}
