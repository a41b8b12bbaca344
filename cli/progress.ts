import type { PushEvent, PushFailure } from '../agent/push/events.ts';
import type { PushSummary } from '../agent/push/push.ts';
import { fullPath, type StoreDir } from '../nix/store-path.ts';
import { count, formatBytes, formatDuration } from './units.ts';

/** As much of a stream of the process as is needed to write to it. */
export interface Output {
  write(text: string): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
}

const REDRAW_MS = 100;
/** Calls that fail side by side say so once in this time. */
const RETRY_QUIET_MS = 1000;
const CLEAR_LINE = '\r\x1b[K';

/**
 * Tells people how a push goes: on a terminal in one line that is drawn again and again, else with a line
 * for each path.
 */
export class PushProgress {
  readonly #storeDir: StoreDir;
  readonly #out: Output;
  readonly #err: Output;
  readonly #start = performance.now();
  #total = 0;
  #settled = 0;
  #narBytes = 0;
  #dumped = 0;
  #lastRetry = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  constructor(storeDir: StoreDir, out: Output, err: Output) {
    this.#storeDir = storeDir;
    this.#out = out;
    this.#err = err;
  }

  on(event: PushEvent): void {
    switch (event.type) {
      case 'plan':
        this.#total = event.missing;
        this.#narBytes = event.narBytes;
        if (this.#err.isTTY && this.#total > 0) this.#timer = setInterval(() => this.#draw(), REDRAW_MS);
        break;
      case 'dumped':
        this.#dumped += event.narBytes;
        break;
      case 'pushed': {
        this.#settled++;
        const sizes = `${formatBytes(event.narSize)} → ${formatBytes(event.fileSize)}`;
        if (!this.#err.isTTY) this.#out.write(`pushed ${fullPath(this.#storeDir, event.path)}  (${sizes})\n`);
        break;
      }
      case 'present':
        this.#settled++;
        break;
      case 'failed':
        this.#settled++;
        this.#say(this.#failureLine(event));
        break;
      case 'retry':
        if (performance.now() - this.#lastRetry < RETRY_QUIET_MS) break;
        this.#lastRetry = performance.now();
        this.#say(`${event.message}; trying again in ${formatDuration(event.delay)}`);
        break;
      case 'sent':
        break;
    }
  }

  /** Ends the progress line; nothing is drawn afterwards. */
  stop(): void {
    if (this.#timer === undefined) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#err.write(CLEAR_LINE);
  }

  /** Says how the push of a whole closure ended. */
  summarize(summary: PushSummary, cache: string): void {
    this.stop();
    for (const { path, kept } of summary.mismatched) {
      const full = fullPath(this.#storeDir, path);
      this.#err.write(
        `'${cache}' keeps other contents of ${full} (NarHash ${kept}): its build is not reproducible\n`,
      );
    }
    this.#out.write(`${this.#summaryLine(summary, cache)}\n`);
  }

  #summaryLine(summary: PushSummary, cache: string): string {
    const { closure, pushed, present, failed, narBytes, sentBytes } = summary;
    if (present === closure) {
      return closure === 1
        ? `the path is in '${cache}' already`
        : `all ${closure} paths are in '${cache}' already`;
    }
    const parts = [`${count(pushed, 'path')} pushed`];
    if (present > 0) parts.push(`${present} ${present === 1 ? 'was' : 'were'} there already`);
    if (failed.length > 0) parts.push(`${failed.length} failed`);
    const time = formatDuration(performance.now() - this.#start);
    const bytes = `${formatBytes(narBytes)} NAR, ${formatBytes(sentBytes)} sent in ${time}`;
    return `${parts.join(', ')}: ${bytes}`;
  }

  #failureLine({ path, message, hint }: PushFailure): string {
    const reason = `failed ${fullPath(this.#storeDir, path)}: ${message}`;
    return hint === undefined ? reason : `${reason}. ${hint}`;
  }

  /** A line on standard error, above the progress line. */
  #say(line: string): void {
    this.#err.write(this.#timer === undefined ? `${line}\n` : `${CLEAR_LINE}${line}\n`);
  }

  #draw(): void {
    const elapsed = performance.now() - this.#start;
    const rate = (this.#dumped / elapsed) * 1000;
    const left = this.#narBytes - this.#dumped;
    const parts = [
      `${this.#settled}/${this.#total} paths`,
      `${formatBytes(this.#dumped)} of ${formatBytes(this.#narBytes)}`,
      `${formatBytes(Math.round(rate))}/s`,
    ];
    if (rate > 0 && left > 0) parts.push(`${formatDuration((left / rate) * 1000)} left`);
    this.#err.write(`${CLEAR_LINE}${parts.join('  ').slice(0, (this.#err.columns ?? 80) - 1)}`);
  }
}
