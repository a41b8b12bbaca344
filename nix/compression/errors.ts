import { FormatError } from '../errors.ts';

/** The compressed bytes are not what they claim to be: `compression_corrupt`. */
export function corrupt(compression: string, cause?: unknown): FormatError {
  return new FormatError('compression_corrupt', `the ${compression} data is corrupt`, { cause });
}

/** The compressed bytes stop too early: `compression_truncated`. */
export function truncated(compression: string, cause?: unknown): FormatError {
  return new FormatError('compression_truncated', `the ${compression} data ends too early`, { cause });
}

/** Something else follows the compressed data: `compression_trailing`. */
export function trailing(compression: string): FormatError {
  return new FormatError('compression_trailing', `something follows the end of the ${compression} data`);
}

/** The data asks for more than we are willing to give: `compression_limit`. */
export function beyondLimit(compression: string, what: string, cause?: unknown): FormatError {
  return new FormatError('compression_limit', `the ${compression} data has ${what}`, { cause });
}
