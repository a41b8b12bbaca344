import { Transform, type TransformCallback } from 'node:stream';

/**
 * A transform whose work is asynchronous and whose output can be far larger than its input:
 * it produces no more while its reader is behind, also in the middle of one input chunk.
 */
export abstract class CodecStream extends Transform {
  #resume: (() => void) | undefined;

  /** Consumes one piece of input. */
  protected abstract consume(chunk: Buffer): Promise<void>;

  /** Produces what is left once the input has ended. */
  protected abstract finish(): Promise<void>;

  /** Hands output to the reader; resolves when the reader wants more. */
  protected async deliver(output: Buffer): Promise<void> {
    if (this.push(output) || this.destroyed) return;
    await new Promise<void>((resolve) => {
      this.#resume = resolve;
    });
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, callback: TransformCallback): void {
    this.consume(chunk).then(() => callback(), callback);
  }

  override _flush(callback: TransformCallback): void {
    this.finish().then(() => callback(), callback);
  }

  override _read(size: number): void {
    const resume = this.#resume;
    if (resume === undefined) {
      super._read(size);
      return;
    }
    this.#resume = undefined;
    resume();
  }
}
