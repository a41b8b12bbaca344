import type { FastifyPluginCallback } from 'fastify';
import { parseRange } from '../../../api/byte-range.ts';
import { notFound } from '../../../api/http/not-found.ts';
import { sendBytes } from '../../../api/send-bytes.ts';
import { parseSha256Base32, type Sha256 } from '../../../nix/hash.ts';
import type { BlobStore } from '../../blobs/blob-store.ts';
import type { Catalogue } from '../../catalogue/catalogue.ts';
import { readableCache } from '../caches.ts';

const HEADERS = {
  'content-type': 'application/x-nix-nar',
  'accept-ranges': 'bytes',
};
const PUBLIC = 'public, immutable, max-age=31536000';
const PRIVATE = 'private, immutable, max-age=31536000';

/** GET and HEAD /{cache}/nar/{NarHash}.nar.zst: the file as it was pushed, whole or one range of it. */
export function narRoute(catalogue: Catalogue, blobs: BlobStore): FastifyPluginCallback {
  return (server, _options, done) => {
    server.route<{ Params: { cache: string; file: string } }>({
      method: ['GET', 'HEAD'],
      url: '/:cache/nar/:file',
      handler: async (request, reply) => {
        const narHash = narHashOf(request.params.file);
        const cache = narHash && (await readableCache(catalogue, request, request.params.cache));
        const blob = cache && (await catalogue.blobOf(cache.id, narHash));
        if (blob === undefined) return notFound(reply);
        // Nix asks again with Range and never with If-Range; with one, the whole is the safe answer.
        const wanted = request.headers['if-range'] === undefined ? request.headers.range : undefined;
        const range = parseRange(wanted, blob.fileSize);
        if (range === 'unsatisfiable') {
          reply.code(416).header('content-range', `bytes */${blob.fileSize}`);
          return reply.type('text/plain').send('no such range\n');
        }
        const { start, end } = range ?? { start: 0, end: blob.fileSize };
        const headers: Record<string, string | number> = {
          ...HEADERS,
          'cache-control': cache?.public ? PUBLIC : PRIVATE,
          'content-length': end - start,
        };
        if (range !== undefined) headers['content-range'] = `bytes ${start}-${end - 1}/${blob.fileSize}`;
        const status = range === undefined ? 200 : 206;
        if (request.method === 'HEAD') return reply.code(status).headers(headers).send();
        const file = await blobs.open(blob.narHash);
        if (file === undefined) return notFound(reply);
        const response = reply.hijack().raw;
        response.writeHead(status, headers);
        try {
          await sendBytes(file, start, end, response);
        } catch (error) {
          // The connection is cut, so that the client knows this was not the end.
          request.log.debug({ err: error }, 'a NAR was not sent to its end');
          response.destroy();
        } finally {
          await file.close();
        }
        return reply;
      },
    });
    done();
  };
}

function narHashOf(file: string): Sha256 | undefined {
  if (!file.endsWith('.nar.zst')) return undefined;
  try {
    return parseSha256Base32(file.slice(0, -'.nar.zst'.length));
  } catch {
    return undefined;
  }
}
