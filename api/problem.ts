import Type, { type Static } from 'typebox';
import { BcacheError } from '../nix/errors.ts';

export const PROBLEM_TYPE = 'application/problem+json';

/** What every failed API call answers (RFC 9457), with `code` for programs and `hint` for the next step. */
export const Problem = Type.Object({
  type: Type.Literal('about:blank'),
  title: Type.String(),
  status: Type.Integer(),
  code: Type.String(),
  hint: Type.Optional(Type.String()),
});
export type Problem = Static<typeof Problem>;

/** An API call that was answered, or is to be answered, with a failure. */
export class ApiError extends BcacheError {
  /** HTTP status. */
  readonly status: number;
  /** Seconds, from `Retry-After`. */
  readonly retryAfter: number | undefined;

  constructor(
    status: number,
    code: string,
    message: string,
    options: { hint?: string; cause?: unknown; retryAfter?: number } = {},
  ) {
    super(code, message, options);
    this.status = status;
    this.retryAfter = options.retryAfter;
  }

  toProblem(): Problem {
    return {
      type: 'about:blank',
      title: this.message,
      status: this.status,
      code: this.code,
      ...(this.hint === undefined ? {} : { hint: this.hint }),
    };
  }
}
