import type { FastifyInstance, FastifyReply } from 'fastify';
import { ApiError, PROBLEM_TYPE } from '../../api/problem.ts';
import { type BcacheError, FormatError } from '../../nix/errors.ts';

/** Any failure as the answer it gets: what the client did wrong in full, what we did wrong without details. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const { code, statusCode, message } = error as { code?: string; statusCode?: number; message?: string };
  if (error instanceof FormatError) return new ApiError(400, error.code, error.message, hintOf(error));
  if (code === 'SQLITE_FULL' || code === 'ENOSPC' || code === 'EDQUOT') {
    return new ApiError(507, 'disk_full', "the origin's disk is full", {
      hint: 'free space in its state directory, then push again: what was sent so far is kept',
    });
  }
  if (statusCode !== undefined && statusCode < 500) {
    return new ApiError(statusCode, (code ?? 'bad_request').toLowerCase(), message ?? 'bad request');
  }
  return new ApiError(500, 'internal_error', 'something went wrong in the origin; its log says what');
}

/** Answers every failure of the API as problem+json. */
export function problemErrors(server: FastifyInstance): void {
  server.setErrorHandler((error, request, reply) => {
    const problem = toApiError(error);
    if (problem.status >= 500) request.log.error({ err: error }, 'a request failed');
    if (problem.retryAfter !== undefined) reply.header('retry-after', problem.retryAfter);
    return sendProblem(reply, problem);
  });
  server.setNotFoundHandler((request, reply) => {
    const problem = new ApiError(
      404,
      'no_such_route',
      `there is nothing at ${request.method} ${request.url}`,
    );
    return sendProblem(reply, problem);
  });
}

export function sendProblem(reply: FastifyReply, problem: ApiError): FastifyReply {
  return reply.code(problem.status).type(PROBLEM_TYPE).send(JSON.stringify(problem.toProblem()));
}

function hintOf(error: BcacheError): { hint?: string } {
  return error.hint === undefined ? {} : { hint: error.hint };
}
