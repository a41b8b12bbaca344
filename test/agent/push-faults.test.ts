import t from 'tap';
import { ApiError } from '../../api/problem.ts';
import type { StorePath } from '../../nix/store-path.ts';
import { fail } from '../support/fake-origin.ts';
import { noise, PushBench } from '../support/push.ts';

/** Three paths in a row. */
function chain(bench: PushBench): [StorePath, StorePath, StorePath] {
  const first = bench.store.add('first', 'first');
  const second = bench.store.add('second', 'second', [first]);
  return [first, second, bench.store.add('third', 'third', [second])];
}

t.test('every call is repeated while the origin is busy', async (t) => {
  for (const status of [429, 502, 503, 504]) {
    const bench = await PushBench.open(t);
    const paths = [...chain(bench), bench.store.add('large', noise(6 << 20))];
    bench.origin.fault = ({ count }, { request, response }) => {
      if (count > 1) return false;
      request.resume().on('end', () => fail(response, new ApiError(status, 'busy', 'busy')));
      return true;
    };
    const summary = await bench.push(paths);
    t.match(summary, { pushed: 4, failed: [] }, `${status}`);
    t.ok(paths.every((path) => bench.has(path)));
    t.ok(bench.events.filter(({ type }) => type === 'retry').length >= 3);
  }
});

t.test('a commit whose answer breaks off is asked again for the rest', async (t) => {
  const bench = await PushBench.open(t);
  const paths = chain(bench);
  let cut = false;
  bench.origin.fault = ({ path }, { response }) => {
    if (path !== 'commit' || cut) return false;
    cut = true;
    const write = response.write.bind(response);
    response.write = ((text: string) => {
      response.write = (() => true) as typeof response.write;
      setTimeout(() => response.socket?.destroy(), 20);
      return write(text);
    }) as typeof response.write;
    response.end = (() => response) as typeof response.end;
    return false;
  };
  const summary = await bench.push([paths[2]]);
  // How many went into the first commit depends on how quickly they were dumped; of one it was heard.
  t.same(summary.failed, []);
  t.equal(summary.pushed + summary.present, 3);
  const [first = []] = bench.origin.commits;
  t.ok(summary.present >= first.length - 1, 'the rest of it was there already');
  t.ok(paths.every((path) => bench.has(path)));
});

t.test('a commit that ends in a problem is put down to one path', async (t) => {
  const bench = await PushBench.open(t);
  const [first, second, third] = chain(bench);
  const other = bench.store.add('other', 'other');
  bench.origin.judge = (entry) => {
    if (entry.path.endsWith('-second')) throw new ApiError(500, 'broken', 'something broke');
    return undefined;
  };
  const summary = await bench.push([third, other]);
  t.equal(summary.pushed, 2);
  t.ok(bench.has(first));
  t.ok(bench.has(other));
  t.match(
    summary.failed.map(({ path, code }) => [path, code]),
    [
      [second, 'broken'],
      [third, 'reference_failed'],
    ],
  );
});

t.test('what concerns all paths ends the push at once', async (t) => {
  for (const [status, call] of [
    [401, 'missing'],
    [404, 'missing'],
    [403, 'commit'],
    [507, 'commit'],
    [403, 'uploads'],
    [507, 'part'],
  ] as const) {
    const bench = await PushBench.open(t);
    const paths = [...chain(bench), bench.store.add('large', noise(6 << 20))];
    bench.origin.fault = ({ path }, { request, response }) => {
      if (path !== call && !(call === 'part' && path.includes('/parts/'))) return false;
      const error = new ApiError(status, 'no', 'the origin says no', { hint: 'ask for it' });
      request.resume().on('end', () => fail(response, error));
      return true;
    };
    const rejected = bench.push(paths, { jobs: 1 });
    await t.rejects(
      rejected,
      { code: 'no', message: 'the origin says no', hint: 'ask for it' },
      `${status} ${call}`,
    );
    const calls = bench.origin.requests.filter((line) => line.includes(call));
    // Two commits may have been under way.
    if (call !== 'part') t.ok(calls.length <= (call === 'commit' ? 2 : 1), 'it is not repeated');
  }
});

t.test('an origin that is away is given up', async (t) => {
  const bench = await PushBench.open(t);
  const paths = chain(bench);
  bench.origin.fault = ({ path }, { request }) => {
    if (path !== 'commit') return false;
    request.socket.destroy();
    return true;
  };
  await t.rejects(bench.push([paths[2]]), { code: 'unreachable', hint: /runs/ });
  t.equal(bench.origin.requests.filter((line) => line === 'POST commit').length, 4);
});

t.test('a push that is aborted ends soon, wherever it is', async (t) => {
  for (const place of ['missing', 'uploads', 'parts', 'commit']) {
    const bench = await PushBench.open(t);
    const paths = [...chain(bench), bench.store.add('large', noise(20 << 20))];
    const stop = new AbortController();
    bench.origin.fault = ({ path }) => {
      if (!path.includes(place)) return false;
      stop.abort(new Error('enough'));
      // It is never answered.
      return true;
    };
    await t.rejects(bench.push(paths, { signal: stop.signal }), { message: 'enough' }, place);
  }
  const bench = await PushBench.open(t);
  const path = bench.store.add('path', 'path');
  const signal = AbortSignal.abort(new Error('before'));
  await t.rejects(bench.push([path], { signal }), { message: 'before' });
  t.same(bench.origin.requests, []);
});
