import fc from 'fast-check';
import t from 'tap';
import type { StorePath } from '../../nix/store-path.ts';
import { hashOf } from '../support/fake-origin.ts';
import { noise, PushBench } from '../support/push.ts';

t.test('a closure goes over whole, and only once', async (t) => {
  const bench = await PushBench.open(t);
  const { store, origin } = bench;
  const base = store.add('base', 'base');
  const empty = store.add('empty', '');
  const library = store.add('library', noise(100_000), [base]);
  const program = store.add('program', 'run', [library, empty]);
  store.add('other', 'not asked for');

  const summary = await bench.push([program]);
  t.match(summary, { closure: 4, pushed: 4, present: 0, failed: [], mismatched: [] });
  t.equal(
    summary.narBytes,
    [base, empty, library, program].reduce((sum, path) => sum + narSize(path), 0),
  );
  for (const path of [base, empty, library, program]) t.ok(bench.has(path), path);
  t.equal(origin.entries.size, 4);
  t.same(bench.requests(), ['POST missing', 'POST commit'], 'one question, one commit');
  t.match(bench.events[0], { type: 'plan', closure: 4, missing: 4, narBytes: summary.narBytes });
  t.equal(total('dumped'), summary.narBytes);
  t.equal(total('sent'), summary.sentBytes);
  const files = [...origin.entries.values()].reduce((sum, { file }) => sum + file.length, 0);
  t.equal(summary.sentBytes, files);

  const again = await bench.push([program]);
  t.same(again, { closure: 4, pushed: 0, present: 4, failed: [], narBytes: 0, sentBytes: 0, mismatched: [] });
  t.equal(origin.requests.length, 3, 'nothing but the question');

  function narSize(path: StorePath): number {
    return store.infos.get(path)?.narSize ?? Number.NaN;
  }
  function total(type: 'dumped' | 'sent'): number {
    let sum = 0;
    for (const event of bench.events) {
      if (event.type === 'dumped' && type === 'dumped') sum += event.narBytes;
      if (event.type === 'sent' && type === 'sent') sum += event.bytes;
    }
    return sum;
  }
});

t.test('what a path is travels with it', async (t) => {
  const bench = await PushBench.open(t);
  const base = bench.store.add('base', 'base');
  const self = bench.store.add('self', 'self', [base]);
  const info = bench.store.infos.get(self)!;
  const deriver = base;
  bench.store.infos.set(self, {
    ...info,
    references: [base, self].sort(),
    deriver,
    ca: `fixed:sha256:${info.narHash}`,
  });
  await bench.push([self]);
  t.same(bench.origin.entries.get(hashOf(self))?.entry, {
    path: `${bench.store.storeDir}/${self}`,
    narHash: `sha256:${info.narHash}`,
    narSize: info.narSize,
    references: [base, self].sort(),
    signatures: [],
    deriver,
    ca: `fixed:sha256:${info.narHash}`,
  });
});

t.test('in any graph references arrive first, and a refusal takes along only what needs it', async (t) => {
  const bench = await PushBench.open(t);
  const { origin, store } = bench;
  const dags = fc.array(fc.tuple(fc.array(fc.nat(100), { maxLength: 3 }), fc.integer({ min: 0, max: 9 })), {
    minLength: 1,
    maxLength: 40,
  });
  let run = 0;
  await fc.assert(
    fc.asyncProperty(dags, async (dag) => {
      run++;
      origin.commits.length = 0;
      const paths: StorePath[] = [];
      const lost = new Map<StorePath, 'odd' | 'reference_failed'>();
      for (const [numbers, luck] of dag) {
        const references = paths.length === 0 ? [] : numbers.map((number) => paths[number % paths.length]!);
        const path = store.add(`p-${run}-${paths.length}`, `contents ${luck}`, references);
        if (references.some((reference) => lost.has(reference))) lost.set(path, 'reference_failed');
        else if (luck === 0) lost.set(path, 'odd');
        paths.push(path);
      }
      origin.judge = (entry) => {
        const path = entry.path.slice(store.storeDir.length + 1) as StorePath;
        if (lost.get(path) !== 'odd') return undefined;
        return { path: entry.path, result: 'refused', code: 'odd', message: 'it is odd' };
      };
      const summary = await bench.push(paths);
      const failed = new Map(summary.failed.map(({ path, code }) => [path, code]));
      if (summary.closure !== new Set(paths).size || failed.size !== summary.failed.length) return false;
      if (summary.pushed !== paths.length - lost.size || failed.size !== lost.size) return false;
      const seen = origin.commits.flat();
      return (
        new Set(seen).size === seen.length &&
        paths.every((path) => failed.get(path) === lost.get(path) && bench.has(path) === !lost.has(path))
      );
    }),
    { numRuns: 12 },
  );
});

t.test('contents that are not what Nix registered do not leave the machine', async (t) => {
  const bench = await PushBench.open(t);
  const bad = bench.store.add('bad', 'contents');
  const large = bench.store.add('bad-large', noise(6 << 20));
  const gone = bench.store.add('gone', 'contents');
  const user = bench.store.add('user', 'needs it', [bad]);
  const good = bench.store.add('good', 'good');
  bench.store.corrupt(bad);
  bench.store.corrupt(large);
  const { rm } = await import('node:fs/promises');
  await rm(`${bench.store.storeDir}/${gone}`);
  const summary = await bench.push([user, good, large, gone]);
  t.equal(summary.pushed, 1);
  t.ok(bench.has(good));
  t.equal(bench.origin.entries.size, 1);
  const byPath = new Map(summary.failed.map((failure) => [failure.path, failure]));
  for (const path of [bad, large]) {
    t.match(byPath.get(path), { code: 'nar_mismatch', message: /do not match/, hint: /nix-store --verify/ });
  }
  t.match(byPath.get(user), { code: 'reference_failed', message: new RegExp(bad) });
  t.match(byPath.get(gone), { code: 'nar_unreadable' });
  t.same(
    bench.events.flatMap((event) => (event.type === 'failed' ? event.path : [])).sort(),
    [bad, large, user, gone].sort(),
  );
});

t.test('a cache that keeps other contents is told apart', async (t) => {
  const bench = await PushBench.open(t);
  const odd = bench.store.add('odd', 'contents');
  const user = bench.store.add('user', 'contents', [odd]);
  const kept = `sha256:${'0'.repeat(52)}`;
  bench.origin.judge = (entry) => {
    if (!entry.path.endsWith('-odd')) return undefined;
    // Somebody else published it in the meantime.
    bench.origin.entries.set(hashOf(odd), { entry, file: Buffer.alloc(0), commit: 0 });
    return { path: entry.path, result: 'present', keptNarHash: kept };
  };
  const summary = await bench.push([user]);
  t.match(summary, { pushed: 1, present: 1, failed: [], mismatched: [{ path: odd, kept }] });
});

t.test('many paths share few commits', async (t) => {
  const bench = await PushBench.open(t);
  const leaves = Array.from({ length: 1200 }, (_, index) =>
    bench.store.add(`leaf-${index}`, `leaf ${index}`),
  );
  const root = bench.store.add('root', 'root', leaves);
  const summary = await bench.push([root]);
  t.equal(summary.pushed, 1201);
  t.ok(bench.origin.commits.every((paths) => paths.length <= 500));
  t.ok(bench.origin.commits.length <= 12, `${bench.origin.commits.length} commits`);
});
