// A worker thread that dumps store paths: reads, hashes and compresses.
import { createHash } from 'node:crypto';
import { parentPort, workerData } from 'node:worker_threads';
import { FrameCompressor } from '../../nix/compression/frame-compressor.ts';
import { BcacheError } from '../../nix/errors.ts';
import { sha256FromBytes } from '../../nix/hash.ts';
import { NAR_BLOCK_SIZE } from '../../nix/nar/block-writer.ts';
import { writeNar } from '../../nix/nar/write.ts';
import {
  type DumpWorkerData,
  FRAME_CREDITS,
  type FromDumpWorker,
  type ToDumpWorker,
} from './dump-messages.ts';
import { Semaphore } from './semaphore.ts';

/** Blocks of all dumps that are compressed at once. */
const BLOCKS_IN_FLIGHT = 3;

interface Dump {
  readonly credits: Semaphore;
  cancelled: boolean;
}

/** A frame that is being made. */
interface Compressing {
  readonly narBytes: number;
  readonly frame: Promise<Uint8Array<ArrayBuffer>>;
}

const port = parentPort;
if (port === null) throw new Error('this module runs in a worker thread');

const { level } = workerData as DumpWorkerData;
const dumps = new Map<number, Dump>();
const places = new Semaphore(BLOCKS_IN_FLIGHT);
const idleBlocks: Buffer[] = [];
const idleCompressors: FrameCompressor[] = [];

port.on('message', (message: ToDumpWorker) => {
  if (message.type === 'dump') {
    void run(message.id, message.root);
  } else if (message.type === 'ack') {
    dumps.get(message.id)?.credits.release();
  } else if (message.type === 'cancel') {
    cancel(message.id);
  } else {
    for (const id of dumps.keys()) cancel(id);
    port.close();
  }
});

function cancel(id: number): void {
  const dump = dumps.get(id);
  if (dump === undefined) return;
  dump.cancelled = true;
  dump.credits.release();
}

async function run(id: number, root: string): Promise<void> {
  const dump: Dump = { credits: new Semaphore(FRAME_CREDITS), cancelled: false };
  dumps.set(id, dump);
  try {
    await dumpPath(id, dump, root);
  } catch (error) {
    const { code, hint } = error instanceof BcacheError ? error : { code: 'dump_failed', hint: undefined };
    post({ type: 'error', id, code, message: error instanceof Error ? error.message : String(error), hint });
  } finally {
    dumps.delete(id);
  }
}

async function dumpPath(id: number, dump: Dump, root: string): Promise<void> {
  const hash = createHash('sha256');
  let narSize = 0;
  const ahead: Compressing[] = [];
  for (const block of writeNar(root, { allocate: takeBlock })) {
    await places.acquire();
    const frame = compress(block);
    // A cancelled dump never looks at it.
    frame.catch(() => {});
    ahead.push({ narBytes: block.length, frame });
    hash.update(block);
    narSize += block.length;
    if (ahead.length === BLOCKS_IN_FLIGHT) await send(id, dump, ahead.shift());
    if (dump.cancelled) return;
  }
  for (const compressing of ahead) await send(id, dump, compressing);
  if (!dump.cancelled) post({ type: 'end', id, narHash: sha256FromBytes(hash.digest()), narSize });
}

/** Frees the block and the place when the frame is made, however long it waits to be sent then. */
async function compress(block: Buffer): Promise<Uint8Array<ArrayBuffer>> {
  const compressor = idleCompressors.pop() ?? new FrameCompressor(level);
  try {
    const frame = await compressor.compress(block);
    idleCompressors.push(compressor);
    return frame;
  } finally {
    // The block was handed out as far as it was filled.
    idleBlocks.push(Buffer.from(block.buffer));
    places.release();
  }
}

async function send(id: number, dump: Dump, compressing: Compressing | undefined): Promise<void> {
  if (compressing === undefined || dump.cancelled) return;
  const bytes = await compressing.frame;
  await dump.credits.acquire();
  const { narBytes } = compressing;
  if (!dump.cancelled) post({ type: 'frame', id, bytes, narBytes }, [bytes.buffer]);
}

function post(message: FromDumpWorker, transfer: readonly ArrayBuffer[] = []): void {
  port?.postMessage(message, transfer);
}

function takeBlock(): Buffer {
  return idleBlocks.pop() ?? Buffer.allocUnsafeSlow(NAR_BLOCK_SIZE);
}
