/**
 * The one error shape of the house: a message for people, a code for programs.
 *
 * `message` is one line that says what is wrong; `hint`, where there is one, says what to do next.
 */
export class BcacheError extends Error {
  readonly code: string;
  readonly hint: string | undefined;

  constructor(code: string, message: string, options: { hint?: string; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    this.code = code;
    this.hint = options.hint;
  }
}

/** Bytes or text that break the format they claim to be in. */
export class FormatError extends BcacheError {}

/** The local Nix store cannot do what was asked: a path is not valid, the daemon is away. */
export class StoreError extends BcacheError {}
