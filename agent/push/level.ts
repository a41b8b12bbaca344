/** The zstd level of a push that names none: higher ones save little for their time. */
export const DEFAULT_LEVEL = 3;
