import fc from 'fast-check';
import t from 'tap';
import { PushGraph, type PushPath } from '../../agent/push/graph.ts';
import { parseSha256Base32 } from '../../nix/hash.ts';
import type { LocalPathInfo } from '../../nix/store/local-store.ts';
import { DEFAULT_STORE_DIR, parseStorePath, type StorePath } from '../../nix/store-path.ts';

const LIMITS = { paths: 4, bytes: 20_000 };

function pathOf(index: number): StorePath {
  return parseStorePath(`${String(index).padStart(32, '0')}-p`);
}

/** Paths each of which refers to earlier ones, by their numbers, and maybe to itself. */
function infos(references: readonly (readonly number[])[]): LocalPathInfo[] {
  return references.map((numbers, index) => ({
    storeDir: DEFAULT_STORE_DIR,
    path: pathOf(index),
    narHash: parseSha256Base32('0'.repeat(52)),
    narSize: 1000,
    references: [...new Set(numbers)].map(pathOf),
    signatures: [],
    registrationTime: 1,
    ultimate: true,
  }));
}

const dags = fc
  .array(fc.array(fc.nat(1000), { maxLength: 4 }), { minLength: 1, maxLength: 30 })
  .map((lists) => lists.map((list, index) => list.map((number) => number % (index + 1))));

t.test('whatever comes first, references are published before what refers to them', (t) => {
  fc.assert(
    fc.property(dags, fc.nat(), fc.nat(4), (dag, seed, luck) => {
      const graph = new PushGraph(infos(dag));
      const dumping: PushPath[] = [];
      const commits: PushPath[][] = [];
      const published = new Set<PushPath>();
      const committed = new Set<PushPath>();
      const culprits = new Set<PushPath>();
      const failed = new Map<StorePath, string>();
      // Of its own, so that it goes on for as long as it takes.
      let state = seed;
      const choose = (below: number): number => {
        state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
        return (state >>> 16) % below;
      };
      const failPath = (path: PushPath): void => {
        if (path.state === 'failed') return;
        culprits.add(path);
        for (const failure of graph.fail(path, { code: 'bad', message: 'bad' })) {
          if (failed.has(failure.path)) throw new Error('failed twice');
          failed.set(failure.path, failure.code);
        }
      };
      const fails = (): boolean => choose(10) < luck;
      for (let step = 0; !graph.settled; step++) {
        if (step > 10_000) throw new Error('it does not come to an end');
        const action = choose(4);
        if (action === 0) {
          const path = graph.takeNext();
          if (path !== undefined) dumping.push(path);
        } else if (action === 1 && dumping.length > 0) {
          const [path] = dumping.splice(choose(dumping.length), 1) as [PushPath];
          if (path.state === 'failed') continue;
          if (fails()) failPath(path);
          else graph.ready(path, { inline: [], fileSize: choose(9000), narSize: 1 });
        } else if (action === 2) {
          const batch = graph.takeBatch(LIMITS);
          if (batch.length > LIMITS.paths) throw new Error('too many paths');
          const before = new Set<PushPath>();
          for (const path of batch) {
            if (committed.has(path)) throw new Error('committed twice');
            committed.add(path);
            if (!path.references.every((other) => published.has(other) || before.has(other))) {
              throw new Error('committed before a reference');
            }
            before.add(path);
          }
          if (batch.length > 0) commits.push(batch);
        } else if (action === 3 && commits.length > 0) {
          for (const path of commits.splice(choose(commits.length), 1)[0] as PushPath[]) {
            if (path.references.some((other) => other.state === 'failed') || fails()) {
              failPath(path);
            } else {
              graph.published(path);
              published.add(path);
            }
          }
        }
      }
      for (const path of graph.paths) {
        const needs = path.references.some((other) => other.state === 'failed');
        if ((path.state === 'failed') !== failed.has(path.path)) throw new Error('a failure was not told');
        if (needs && path.state !== 'failed') throw new Error('it was published without a reference');
        if (!needs && failed.get(path.path) === 'reference_failed')
          throw new Error('no reference had failed');
        if (!needs && path.state === 'failed' && !culprits.has(path))
          throw new Error('it failed for nothing');
      }
      return graph.heldBytes === 0 && graph.readyCount === 0 && graph.readyBytes === 0;
    }),
    { numRuns: 500 },
  );
  t.end();
});

t.test('a failure names what it comes from', (t) => {
  const graph = new PushGraph(infos([[], [0], [1], []]));
  const [first, , , other] = graph.paths as [PushPath, PushPath, PushPath, PushPath];
  graph.takeNext();
  const failures = graph.fail(first, { code: 'bad', message: 'it is bad', hint: 'mend it' });
  t.match(failures, [
    { path: pathOf(0), code: 'bad', message: 'it is bad', hint: 'mend it' },
    {
      path: pathOf(1),
      code: 'reference_failed',
      message: `it needs ${pathOf(0)}, which could not be pushed`,
    },
    {
      path: pathOf(2),
      code: 'reference_failed',
      message: `it needs ${pathOf(0)}, which could not be pushed`,
    },
  ]);
  t.equal(graph.takeNext(), other, 'what failed is not dumped');
  t.end();
});

t.test('a commit is bounded in bytes, but never empty', (t) => {
  const graph = new PushGraph(infos([[], [], []]));
  for (let path = graph.takeNext(); path !== undefined; path = graph.takeNext()) {
    graph.ready(path, { inline: [], fileSize: 1_000_000, narSize: 1 });
  }
  t.equal(graph.heldBytes, 3_000_000);
  t.equal(graph.takeBatch(LIMITS).length, 1);
  t.equal(graph.takeBatch({ paths: 10, bytes: 10_000_000 }).length, 2);
  t.end();
});
