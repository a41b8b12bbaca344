import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { checkContentAddress } from '../../nix/content-address.ts';
import { FormatError } from '../../nix/errors.ts';
import { NarVerifier } from '../../nix/nar/verify.ts';
import { hashPart } from '../../nix/store-path.ts';
import { provingAddress } from './accept.ts';
import type { GrowingFile } from './growing-file.ts';
import type { FoundNarInfo } from './narinfos.ts';
import { type NarResponse, UpstreamError } from './upstream.ts';

/** Waits before each try to go on with a broken download; a try that brings bytes begins them anew. */
const RETRY_DELAYS_MS = [100, 300, 1_000, 2_000];
/** What counts as having brought bytes, so that a trickle cannot go on for ever. */
const PROGRESS_BYTES = 64 << 10;

/** What compressing may add to a NAR at worst; a larger file cannot be right. */
export function maxFileSize(narSize: number): number {
  return narSize + Math.floor(narSize / 8) + (64 << 10);
}

/**
 * Takes a NAR from its upstream into `file` and checks it on the way.
 *
 * @throws FormatError where the bytes are not what the narinfo promises, UpstreamError where the upstream
 *   breaks off for good, or what writing to the disk fails with
 */
export async function transferNar(
  source: FoundNarInfo,
  response: NarResponse,
  file: GrowingFile,
  signal: AbortSignal,
  logger: Logger,
): Promise<void> {
  const { info } = source;
  const limit = file.expectedSize ?? maxFileSize(info.narSize);
  const contentAddress = provingAddress(info);
  const verifier = new NarVerifier(info.compression, {
    maxNarSize: info.narSize,
    contentAddress,
    selfReference: info.references.includes(info.path) ? hashPart(info.path) : undefined,
  });
  try {
    for await (const chunk of resumed(source, response, file.expectedSize, signal, logger)) {
      if (file.written + chunk.length > limit) {
        throw new FormatError('nar_too_long', 'the file is longer than announced');
      }
      await Promise.all([file.append(chunk), verifier.write(chunk)]);
    }
    const digest = await verifier.finish();
    if (digest.narHash !== info.narHash || digest.narSize !== info.narSize) {
      throw new FormatError('nar_mismatch', 'the NAR is not the one its narinfo promises');
    }
    if (contentAddress !== undefined && checkContentAddress(info, digest.contentHash) !== 'proven') {
      throw new FormatError('content_mismatch', 'the NAR is not what the content address of its path says');
    }
  } finally {
    verifier.destroy();
  }
}

/** The chunks of the whole file; a connection that breaks is taken up again where it broke. */
async function* resumed(
  { upstream, info }: FoundNarInfo,
  first: NarResponse,
  size: number | undefined,
  signal: AbortSignal,
  logger: Logger,
): AsyncGenerator<Buffer> {
  let offset = 0;
  let safe = 0;
  let tries = 0;
  let response: NarResponse | undefined = first;
  for (;;) {
    try {
      response ??= await upstream.nar(info.url, offset, signal);
      if (response === undefined) throw new UpstreamError('upstream_gone', 'the NAR is gone');
      if (response !== first && (response.size ?? size) !== (size ?? response.size)) {
        throw new UpstreamError('upstream_changed', 'the NAR is another one now');
      }
      for await (const chunk of response.body) {
        offset += chunk.length;
        yield chunk;
      }
      if (size === undefined || offset >= size) return;
      throw new UpstreamError('upstream_short', 'the NAR ended early');
    } catch (error) {
      if (offset >= safe + PROGRESS_BYTES) {
        safe = offset;
        tries = 0;
      }
      const delay = RETRY_DELAYS_MS[tries++];
      const reason = error instanceof Error ? error.message : String(error);
      logger.warn({ upstream: upstream.url, path: info.path, offset, reason }, 'a download broke off');
      if (delay === undefined || signal.aborted) {
        throw error instanceof UpstreamError
          ? error
          : new UpstreamError('upstream_broken', `the download broke off: ${reason}`, { cause: error });
      }
      response = undefined;
      await sleep(delay, undefined, { signal });
    }
  }
}
