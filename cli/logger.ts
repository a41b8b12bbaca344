import { type Logger, pino } from 'pino';

/** JSON lines on standard error, from `BCACHE_LOG_LEVEL` on (default `info`). */
export function createLogger(env: NodeJS.ProcessEnv): Logger {
  const level = env.BCACHE_LOG_LEVEL || 'info';
  return pino({ name: 'bcache', level: level in pino.levels.values ? level : 'info' }, pino.destination(2));
}
