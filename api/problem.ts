import { BcacheError } from '../nix/errors.ts';
import type { Problem } from './schemas.ts';

export const PROBLEM_TYPE = 'application/problem+json';

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
