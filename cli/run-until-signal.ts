import type { Logger } from 'pino';

/** Waits for SIGINT or SIGTERM, then closes; a second signal ends the process at once. */
export async function runUntilSignal(running: { close(): Promise<void> }, logger: Logger): Promise<void> {
  const signal = await new Promise<NodeJS.Signals>((resolve) => {
    process.once('SIGINT', resolve);
    process.once('SIGTERM', resolve);
  });
  logger.info({ signal }, 'stopping');
  await running.close();
}
