import { createHash } from 'node:crypto';
import type { CacheName } from '../../api/cache-name.ts';
import type { OriginClient } from '../../api/client.ts';
import { LIMITS } from '../../api/limits.ts';
import { ApiError } from '../../api/problem.ts';
import type { Upload } from '../../api/schemas.ts';
import { BcacheError } from '../../nix/errors.ts';
import type { Sha256 } from '../../nix/hash.ts';
import type { StorePath } from '../../nix/store-path.ts';
import { type Retrying, retry } from './retry.ts';
import { Semaphore } from './semaphore.ts';

/** Bytes of parts in memory, of all uploads together: those that are filled and those on their way. */
const PART_BYTES = 24 << 20;
/** However small the parts are. */
const MAX_PARTS = 8;

/** The upload cannot be finished as it is at the origin: it has to be opened and sent anew. */
export class UploadLost extends BcacheError {
  constructor(message: string) {
    super('upload_lost', message, { hint: 'Push again; nothing else may push the same path meanwhile.' });
  }
}

export interface UploadTarget {
  readonly origin: OriginClient;
  readonly cache: CacheName;
  readonly retrying: Retrying;
  readonly onSent: (bytes: number) => void;
}

/** Uploads of large NARs to one cache. */
export class PartUploads {
  readonly target: UploadTarget;
  #places: Semaphore | undefined;
  /** Buffers of parts between two uses: fresh ones would lie about until they are collected. */
  readonly #idle: Buffer[] = [];

  constructor(target: UploadTarget) {
    this.target = target;
  }

  /** Opens the upload of a NAR, or finds the one that was left unfinished. @throws ApiError */
  async open(path: StorePath, narHash: Sha256): Promise<PartUpload> {
    const { origin, cache, retrying } = this.target;
    const upload = await retry(() => origin.openUpload(cache, path, narHash), retrying);
    if (!(upload.partSize >= 1 && upload.partSize <= LIMITS.partBytes)) {
      throw new ApiError(200, 'bad_answer', `the origin asks for parts of ${upload.partSize} bytes`);
    }
    // An origin has parts of one size; two at least, to fill one while another is on its way.
    this.#places ??= new Semaphore(
      Math.min(Math.max(2, Math.floor(PART_BYTES / upload.partSize)), MAX_PARTS),
    );
    return new PartUpload(this, upload);
  }

  /** Waits for its turn; each buffer has to be given back. */
  async takeBuffer(size: number): Promise<Buffer> {
    await this.#places?.acquire();
    const buffer = this.#idle.pop();
    return buffer?.length === size ? buffer : Buffer.allocUnsafeSlow(size);
  }

  giveBuffer(buffer: Buffer): void {
    this.#idle.push(buffer);
    this.#places?.release();
  }
}

/**
 * One NAR on its way in parts. Parts that the origin has from an earlier push are not sent again.
 *
 * A failed part makes the next call throw; {@link UploadLost} where the upload is gone, or holds more
 * parts than this NAR has.
 */
export class PartUpload {
  readonly id: string;
  readonly #uploads: PartUploads;
  readonly #upload: Upload;
  #part: Buffer | undefined;
  #filled = 0;
  #number = 0;
  readonly #sending = new Set<Promise<void>>();
  #failure: { readonly error: unknown } | undefined;

  constructor(uploads: PartUploads, upload: Upload) {
    this.id = upload.id;
    this.#uploads = uploads;
    this.#upload = upload;
  }

  /** Adds to the compressed NAR; resolves when there is room for more. */
  async write(bytes: Buffer): Promise<void> {
    for (let from = 0; from < bytes.length; ) {
      this.#check();
      this.#part ??= await this.#uploads.takeBuffer(this.#upload.partSize);
      const copied = bytes.copy(this.#part, this.#filled, from);
      from += copied;
      this.#filled += copied;
      if (this.#filled === this.#part.length) this.#send(this.#part);
    }
  }

  /** Sends what is left. */
  end(): void {
    if (this.#part !== undefined) this.#send(this.#part.subarray(0, this.#filled));
  }

  /** Resolves when every part has arrived. Call it after {@link end}. */
  async arrived(): Promise<void> {
    await Promise.all(this.#sending);
    this.#check();
    // Left by a push that compressed less: they would be taken for the end of this NAR.
    if (this.#upload.parts.some(({ number }) => number >= this.#number)) await this.#giveUp();
  }

  /** Gives up what was not sent yet, where the NAR will not come to its end. */
  cancel(): void {
    if (this.#part !== undefined) this.#uploads.giveBuffer(this.#part);
    this.#part = undefined;
  }

  #send(part: Buffer): void {
    const sending = this.#put(this.#number++, part).finally(() => {
      this.#sending.delete(sending);
      this.#uploads.giveBuffer(Buffer.from(part.buffer));
    });
    this.#sending.add(sending);
    this.#part = undefined;
    this.#filled = 0;
  }

  /** Never rejects: what went wrong is kept for {@link #check}. */
  async #put(number: number, part: Buffer): Promise<void> {
    const { origin, cache, retrying, onSent } = this.#uploads.target;
    const known = this.#upload.parts.find((other) => other.number === number);
    if (known?.size === part.length && known.sha256 === sha256Hex(part)) return;
    try {
      await retry(() => origin.putPart(cache, this.id, number, part), retrying);
      onSent(part.length);
    } catch (error) {
      this.#failure ??= { error };
    }
  }

  #check(): void {
    if (this.#failure === undefined) return;
    const { error } = this.#failure;
    // Another push of the same path has finished it, or it lay idle for too long.
    if (error instanceof ApiError && error.status === 404) {
      throw new UploadLost('its upload is gone');
    }
    throw error;
  }

  async #giveUp(): Promise<never> {
    const { origin, cache, retrying } = this.#uploads.target;
    try {
      await retry(() => origin.dropUpload(cache, this.id), retrying);
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) throw error;
    }
    throw new UploadLost('its upload held parts of another form of it');
  }
}

function sha256Hex(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}
