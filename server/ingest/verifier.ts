import { availableParallelism } from 'node:os';
import { Piscina } from 'piscina';
import { FormatError } from '../../nix/errors.ts';
import type { FileDigest, VerifyAnswer, VerifyTask } from './verify-worker.ts';

/** Verifies staged NARs on threads of their own, as many as there are cores. */
export class Verifier {
  readonly #pool = new Piscina<VerifyTask, VerifyAnswer>({
    filename: new URL('verify-worker.ts', import.meta.url).href,
    minThreads: 1,
    maxThreads: availableParallelism(),
    // Two each: one waits for its decompressor while the other hashes.
    concurrentTasksPerWorker: 2,
    idleTimeout: 30_000,
  });

  /** @throws FormatError `nar_*`, `compression_*` or of the content address */
  async verify(task: VerifyTask): Promise<FileDigest> {
    const answer = await this.#pool.run(task);
    if ('error' in answer) throw new FormatError(answer.error.code, answer.error.message);
    const { contentHash, ...digest } = answer.digest;
    // Between threads a Buffer turns into a plain Uint8Array.
    return { ...digest, contentHash: contentHash && Buffer.from(contentHash) };
  }

  close(): Promise<void> {
    return this.#pool.destroy();
  }
}
