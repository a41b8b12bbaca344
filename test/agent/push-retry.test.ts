import t from 'tap';
import { DEFAULT_RETRY, retry } from '../../agent/push/retry.ts';
import { ApiError } from '../../api/problem.ts';

const policy = { tries: 4, firstDelay: 8, maxDelay: 16 };

function failing(times: number, error: Error): { call: () => Promise<string>; made: () => number } {
  let made = 0;
  const call = async () => {
    if (made++ < times) throw error;
    return 'done';
  };
  return { call, made: () => made };
}

t.test('what may pass is tried again, later each time', async (t) => {
  for (const status of [0, 429, 502, 503, 504]) {
    const delays: number[] = [];
    const { call } = failing(3, new ApiError(status, 'x', 'x'));
    const onRetry = (_error: ApiError, delay: number) => delays.push(delay);
    t.equal(await retry(call, { policy, signal: new AbortController().signal, onRetry }), 'done');
    t.equal(delays.length, 3);
    for (const [index, most] of [8, 16, 16].entries()) {
      const delay = delays[index] as number;
      t.ok(delay >= most / 2 && delay <= most, `${delay} ms of ${most}`);
    }
  }
});

t.test('it ends after so many tries, and at once for other errors', async (t) => {
  const { signal } = new AbortController();
  const onRetry = () => {};
  const away = failing(9, new ApiError(503, 'busy', 'busy'));
  await t.rejects(retry(away.call, { policy, signal, onRetry }), { code: 'busy' });
  t.equal(away.made(), 4);
  for (const error of [new ApiError(400, 'bad', 'bad'), new ApiError(500, 'bad', 'bad'), new Error('bad')]) {
    const wrong = failing(1, error);
    await t.rejects(retry(wrong.call, { policy, signal, onRetry }), error);
    t.equal(wrong.made(), 1);
  }
});

t.test('Retry-After is heeded, within reason', async (t) => {
  const { signal } = new AbortController();
  const delays: number[] = [];
  const onRetry = (_error: ApiError, delay: number) => delays.push(delay);
  const soon = failing(1, new ApiError(503, 'busy', 'busy', { retryAfter: 0.1 }));
  await retry(soon.call, { policy, signal, onRetry });
  t.same(delays, [100]);
  const never = failing(1, new ApiError(503, 'busy', 'busy', { retryAfter: 86_400 }));
  await t.rejects(retry(never.call, { policy, signal, onRetry }), { code: 'busy' });
  t.equal(never.made(), 1);
});

t.test('a signal ends the waiting', async (t) => {
  const stop = new AbortController();
  const { call, made } = failing(9, new ApiError(0, 'away', 'away'));
  const onRetry = () => stop.abort(new Error('enough'));
  await t.rejects(retry(call, { policy: DEFAULT_RETRY, signal: stop.signal, onRetry }), {
    message: 'enough',
  });
  t.equal(made(), 1);
  await t.rejects(retry(call, { policy, signal: stop.signal, onRetry }), { message: 'enough' });
  t.equal(made(), 1);

  const later = new AbortController();
  const never = retry(() => new Promise(() => {}), { policy, signal: later.signal, onRetry });
  setTimeout(() => later.abort(new Error('no answer')), 5);
  await t.rejects(never, { message: 'no answer' });
});
