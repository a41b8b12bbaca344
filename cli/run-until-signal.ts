import type { Logger } from 'pino';

/** Waits for SIGINT or SIGTERM, then closes. Further signals are ignored: a shell and a parent may both send one. */
export async function runUntilSignal(running: { close(): Promise<void> }, logger: Logger): Promise<void> {
  const signal = await new Promise<NodeJS.Signals>((resolve) => {
    process.on('SIGINT', resolve);
    process.on('SIGTERM', resolve);
  });
  logger.info({ signal }, 'stopping');
  await running.close();
}
