import { Readable } from 'node:stream';
import type { FastifyPluginCallbackTypebox } from '@fastify/type-provider-typebox';
import Type from 'typebox';
import { COMMIT_TYPE } from '../../../api/commit-body.ts';
import { decodeCommit } from '../../../api/commit-decode.ts';
import { LIMITS } from '../../../api/limits.ts';
import { ApiError } from '../../../api/problem.ts';
import { MissingRequest, MissingResponse, Upload, UploadCreate } from '../../../api/schemas.ts';
import { parseSha256 } from '../../../nix/hash.ts';
import { parseStorePath, type StorePathHash } from '../../../nix/store-path.ts';
import type { BlobStore } from '../../blobs/blob-store.ts';
import type { Catalogue } from '../../catalogue/catalogue.ts';
import type { Ingest } from '../../ingest/ingest.ts';
import { dropUpload, noSuchUpload, openUpload, receivePart } from '../../ingest/uploads.ts';
import { permittedCache } from '../caches.ts';
import { toApiError } from '../errors.ts';
import { CacheParams } from './caches.ts';

const PART_TYPE = 'application/octet-stream';

/** Verifying a large NAR takes its time; a byte now and then tells client and proxies that it goes on. */
const HEARTBEAT_MS = 10_000;

const UploadParams = Type.Object({ ...CacheParams.properties, id: Type.String({ format: 'uuid' }) });
const PartParams = Type.Object({
  ...UploadParams.properties,
  number: Type.Integer({ minimum: 0, maximum: 1_000_000 }),
});

/** What `bcache push` calls: missing, uploads in parts, commit. */
export function pushRoutes(
  catalogue: Catalogue,
  blobs: BlobStore,
  ingest: Ingest,
): FastifyPluginCallbackTypebox {
  return (server, _options, done) => {
    // Bodies that are read as they come.
    server.addContentTypeParser([COMMIT_TYPE, PART_TYPE], (_request, payload, next) => next(null, payload));

    server.post(
      '/caches/:cache/missing',
      {
        schema: { params: CacheParams, body: MissingRequest, response: { 200: MissingResponse } },
        bodyLimit: LIMITS.missingHashes * 40,
      },
      async (request) => {
        const cache = await permittedCache(catalogue, request, request.params.cache, 'push');
        return { missing: await catalogue.missing(cache.id, request.body.hashes as StorePathHash[]) };
      },
    );

    server.post(
      '/caches/:cache/uploads',
      { schema: { params: CacheParams, body: UploadCreate, response: { 200: Upload } } },
      async (request) => {
        const cache = await permittedCache(catalogue, request, request.params.cache, 'push');
        const { path, narHash } = request.body;
        return openUpload(catalogue, cache, parseStorePath(path), parseSha256(narHash));
      },
    );

    server.put(
      '/caches/:cache/uploads/:id/parts/:number',
      { schema: { params: PartParams } },
      async (request, reply) => {
        const cache = await permittedCache(catalogue, request, request.params.cache, 'push');
        const { id, number } = request.params;
        const sha256 = contentDigest(request.headers['content-digest']);
        const body = streamed(request.body);
        await receivePart(catalogue, blobs, cache, id, number, sha256, body);
        return reply.code(204).send();
      },
    );

    server.delete(
      '/caches/:cache/uploads/:id',
      { schema: { params: UploadParams } },
      async (request, reply) => {
        const cache = await permittedCache(catalogue, request, request.params.cache, 'push');
        const { id } = request.params;
        if ((await catalogue.findUpload(cache.id, id)) === undefined) throw noSuchUpload();
        await dropUpload(catalogue, blobs, id);
        return reply.code(204).send();
      },
    );

    server.post('/caches/:cache/commit', { schema: { params: CacheParams } }, async (request, reply) => {
      const cache = await permittedCache(catalogue, request, request.params.cache, 'push');
      const receipt = await ingest.receive(cache, decodeCommit(streamed(request.body)));
      // Not within the generator: nobody runs that once the client has gone.
      const results = ingest.publish(cache, receipt);
      results.catch((error) => request.log.error({ err: error }, 'a commit failed'));
      const lines = (async function* () {
        try {
          yield* heartbeat(results);
          for (const result of await results) yield `${JSON.stringify(result)}\n`;
        } catch (error) {
          yield `${JSON.stringify(toApiError(error).toProblem())}\n`;
        }
      })();
      return reply.type('application/x-ndjson').send(Readable.from(lines));
    });
    done();
  };
}

/** An empty line each 10 s until `work` is settled. */
async function* heartbeat(work: Promise<unknown>): AsyncGenerator<string> {
  const settled = work.then(
    () => true,
    () => true,
  );
  for (;;) {
    let timer: NodeJS.Timeout | undefined;
    const beat = new Promise<boolean>((resolve) => {
      timer = setTimeout(resolve, HEARTBEAT_MS, false);
    });
    const done = await Promise.race([settled, beat]);
    clearTimeout(timer);
    if (done) return;
    yield '\n';
  }
}

function streamed(body: unknown): Readable {
  if (body instanceof Readable) return body;
  throw new ApiError(415, 'bad_content_type', `the body must be ${COMMIT_TYPE} or ${PART_TYPE}`);
}

/** The SHA-256 of RFC 9530's `Content-Digest`, in lower-case hex. */
function contentDigest(header: string | string[] | undefined): string {
  const match = /(?:^|,)\s*sha-256=:([0-9A-Za-z+/]{43}=):/.exec(String(header ?? ''));
  if (match === null)
    throw new ApiError(400, 'bad_digest', 'the header Content-Digest with sha-256 is missing');
  return Buffer.from(match[1] as string, 'base64').toString('hex');
}
