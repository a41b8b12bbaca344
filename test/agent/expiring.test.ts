import t from 'tap';
import { ExpiringMap } from '../../agent/substituter/expiring.ts';

t.test('entries go away after their time', (t) => {
  const clock = t.capture(performance, 'now', () => time);
  let time = 1_000;
  const map = new ExpiringMap<string, number>(100, 10);
  map.set('a', 1);
  time += 60;
  map.set('b', 2);
  t.equal(map.get('a'), 1);
  time += 60;
  t.equal(map.get('a'), undefined);
  t.ok(map.has('b'));
  map.delete('b');
  t.notOk(map.has('b'));
  clock.restore();
  t.end();
});

t.test('a full map forgets what was set longest ago', (t) => {
  const map = new ExpiringMap<number, true>(60_000, 3);
  for (const key of [1, 2, 3, 1, 4]) map.set(key, true);
  t.same(
    [1, 2, 3, 4].filter((key) => map.has(key)),
    [1, 3, 4],
  );
  t.end();
});
