import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { CHUNK_SIZE } from '../../nix/compression/limits.ts';
import { BcacheError } from '../../nix/errors.ts';
import { type Sha256, sha256FromBytes } from '../../nix/hash.ts';
import { type NarDigest, NarVerifier, type VerifyOptions } from '../../nix/nar/verify.ts';

/** A file with a zstd-compressed NAR, and what is known of it. */
export interface VerifyTask extends Pick<VerifyOptions, 'maxNarSize' | 'contentAddress' | 'selfReference'> {
  readonly file: string;
}

/** Errors lose their code between threads, so they travel as values. */
export type VerifyAnswer =
  | { readonly digest: FileDigest }
  | { readonly error: { readonly code: string; readonly message: string } };

export interface FileDigest extends NarDigest {
  /** Of the compressed file. */
  readonly fileHash: Sha256;
  readonly fileSize: number;
}

/** Reads the file once: decompresses, checks the NAR's grammar and computes all hashes. */
export default async function verify({ file, ...options }: VerifyTask): Promise<VerifyAnswer> {
  const fileHash = createHash('sha256');
  let fileSize = 0;
  const verifier = new NarVerifier('zstd', options);
  try {
    await using handle = await open(file);
    const { size } = await handle.stat();
    const buffer = Buffer.allocUnsafeSlow(Math.min(size, CHUNK_SIZE));
    while (fileSize < size) {
      // One buffer for all: a whole one was taken in when its write is through, and a shorter one is the last.
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, fileSize);
      if (bytesRead === 0) break;
      const chunk = bytesRead === buffer.length ? buffer : Buffer.from(buffer.subarray(0, bytesRead));
      fileHash.update(chunk);
      fileSize += bytesRead;
      await verifier.write(chunk);
    }
    const digest = await verifier.finish();
    return { digest: { ...digest, fileHash: sha256FromBytes(fileHash.digest()), fileSize } };
  } catch (error) {
    if (!(error instanceof BcacheError)) throw error;
    return { error: { code: error.code, message: error.message } };
  } finally {
    verifier.destroy();
  }
}
