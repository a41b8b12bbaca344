import t from 'tap';
import { ApiError } from '../../api/problem.ts';
import type { StorePath } from '../../nix/store-path.ts';
import { fail, hashOf } from '../support/fake-origin.ts';
import { noise, PushBench } from '../support/push.ts';

const PART = /^PUT uploads\/\*\/parts\/\d+$/;

t.test('a large NAR goes in parts', async (t) => {
  const bench = await PushBench.open(t);
  const base = bench.store.add('base', 'base');
  const large = bench.store.add('large', noise((9 << 20) + 5), [base]);
  const user = bench.store.add('user', 'user', [large]);
  const summary = await bench.push([user]);
  t.match(summary, { pushed: 3, failed: [] });
  for (const path of [base, large, user]) t.ok(bench.has(path));
  const parts = bench.requests().filter((line) => PART.test(line));
  t.same(parts.sort(), Array.from({ length: 10 }, (_, number) => `PUT uploads/*/parts/${number}`).sort());
  t.equal(bench.origin.uploads.size, 0);
});

t.test('few parts are on their way at once', async (t) => {
  const bench = await PushBench.open(t);
  const paths = [1, 2, 3].map((number) => bench.store.add(`large-${number}`, noise(7 << 20)));
  let under = 0;
  let most = 0;
  bench.origin.fault = async ({ path }, { response }) => {
    if (!path.includes('/parts/')) return false;
    most = Math.max(most, ++under);
    response.on('close', () => under--);
    await new Promise((resolve) => setTimeout(resolve, 30));
    return false;
  };
  t.match(await bench.push(paths), { pushed: 3 });
  t.ok(most > 1 && most <= 8, `${most} parts`);
});

t.test('a push that was cut off goes on where it was', async (t) => {
  const bench = await PushBench.open(t);
  const large = bench.store.add('large', noise(12 << 20));
  const stop = new AbortController();
  bench.origin.fault = ({ path }) => {
    if (Number(/parts\/(\d+)$/.exec(path)?.[1] ?? 0) < 4) return false;
    setTimeout(() => stop.abort(new Error('cut off')), 100);
    return true;
  };
  const origin = bench.origin.client();
  await t.rejects(bench.push([large], { signal: stop.signal, origin }), { message: 'cut off' });
  await origin.close();
  bench.origin.requests.length = 0;
  let there = 0;
  bench.origin.fault = ({ path }) => {
    if (path === 'uploads') there = [...bench.origin.uploads.values()][0]?.parts.size ?? 0;
    return false;
  };
  const summary = await bench.push([large]);
  t.equal(there, 4);
  t.ok(bench.has(large));
  const parts = bench.requests().filter((line) => PART.test(line));
  t.equal(parts.length, 9, 'only the others are sent');
  t.ok(summary.sentBytes < 9 << 20);
});

t.test('parts that an earlier push left in another form', async (t) => {
  for (const left of [3, 30]) {
    const bench = await PushBench.open(t);
    const large = bench.store.add('large', noise(6 << 20));
    const narHash = `sha256:${bench.store.infos.get(large)?.narHash}`;
    const parts = new Map(Array.from({ length: left }, (_, number) => [number, noise(1 << 20)]));
    bench.origin.uploads.set('left', { id: 'left', narHash, parts });
    t.match(await bench.push([large]), { pushed: 1, failed: [] });
    t.ok(bench.has(large), `${left} parts`);
    t.equal(bench.requests().includes('DELETE uploads/*'), left === 30, 'more than there are to send');
  }
});

t.test('an upload that goes away is made anew', async (t) => {
  const bench = await PushBench.open(t);
  const large = bench.store.add('large', noise(8 << 20));
  let lost = false;
  bench.origin.fault = ({ path }) => {
    if (path.endsWith('/parts/2') && !lost) {
      lost = true;
      bench.origin.uploads.clear();
    }
    return false;
  };
  t.match(await bench.push([large]), { pushed: 1, failed: [] });
  t.ok(bench.has(large));
  t.equal(bench.origin.requests.filter((line) => line === 'POST uploads').length, 2);
});

t.test('two pushes of one path get along', async (t) => {
  const bench = await PushBench.open(t);
  const large = bench.store.add('large', noise(8 << 20));
  const user = bench.store.add('user', 'user', [large]);
  bench.origin.fault = ({ path }) => {
    // The other push has been first.
    if (path.endsWith('/parts/2')) publishElsewhere(bench, large);
    return false;
  };
  t.match(await bench.push([user]), { pushed: 1, present: 1, failed: [] });
});

t.test('an upload that goes away again and again is a failure of its path', async (t) => {
  const bench = await PushBench.open(t);
  const large = bench.store.add('large', noise(8 << 20));
  const other = bench.store.add('other', 'other');
  bench.origin.fault = ({ path }, { request, response }) => {
    if (!path.includes('/parts/')) return false;
    request.resume().on('end', () => fail(response, new ApiError(404, 'no_such_upload', 'no such upload')));
    return true;
  };
  const summary = await bench.push([large, other]);
  t.equal(summary.pushed, 1);
  t.match(summary.failed, [{ path: large, code: 'upload_lost' }]);
  t.equal(bench.origin.requests.filter((line) => line === 'POST uploads').length, 3);
});

t.test('a refused part is a failure of its path', async (t) => {
  const bench = await PushBench.open(t);
  const large = bench.store.add('large', noise(12 << 20));
  const others = [1, 2, 3].map((number) => bench.store.add(`other-${number}`, noise(6 << 20)));
  bench.origin.fault = ({ path }, { request, response }) => {
    if (!path.endsWith('/parts/9')) return false;
    request.resume().on('end', () => fail(response, new ApiError(413, 'too_large', 'the part is too large')));
    return true;
  };
  const summary = await bench.push([large, ...others]);
  t.match(summary.failed, [{ path: large, code: 'too_large', message: 'the part is too large' }]);
  t.ok(others.every((path) => bench.has(path)));
});

function publishElsewhere(bench: PushBench, path: StorePath): void {
  bench.origin.uploads.clear();
  const entry = { path, narHash: '', narSize: 1, references: [], signatures: [] };
  bench.origin.entries.set(hashOf(path), { entry, file: Buffer.alloc(0), commit: 0 });
}
