import type { FastifyPluginCallbackTypebox } from '@fastify/type-provider-typebox';
import { User } from '../../../api/schemas.ts';
import { requireToken } from '../../auth.ts';
import type { Catalogue } from '../../catalogue/catalogue.ts';

/** GET /user: whose token this is, and what it allows. */
export function userRoute(catalogue: Catalogue): FastifyPluginCallbackTypebox {
  return (server, _options, done) => {
    server.get('/user', { schema: { response: { 200: User } } }, async (request) => {
      const token = await requireToken(catalogue, request);
      return {
        name: token.user,
        token: {
          name: token.name,
          permissions: [...token.permissions],
          caches: [...token.caches],
          expiresAt: token.expiresAt?.toISOString() ?? null,
        },
      };
    });
    done();
  };
}
