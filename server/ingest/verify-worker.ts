import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
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

const READ_BYTES = 256 << 10;

/** Reads the file once: decompresses, checks the NAR's grammar and computes all hashes. */
export default async function verify({ file, ...options }: VerifyTask): Promise<VerifyAnswer> {
  const fileHash = createHash('sha256');
  let fileSize = 0;
  const verifier = new NarVerifier('zstd', options);
  try {
    for await (const chunk of createReadStream(file, { highWaterMark: READ_BYTES })) {
      fileHash.update(chunk);
      fileSize += chunk.length;
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
