import t from 'tap';
import { count, formatBytes, formatDuration } from '../../cli/units.ts';

t.test('bytes', (t) => {
  t.equal(formatBytes(0), '0 B');
  t.equal(formatBytes(1023), '1023 B');
  t.equal(formatBytes(1024), '1.0 KiB');
  t.equal(formatBytes(12.34 * 2 ** 20), '12.3 MiB');
  t.equal(formatBytes(5000 * 2 ** 40), '5000.0 TiB');
  t.end();
});

t.test('durations', (t) => {
  t.equal(formatDuration(2345), '2.3 s');
  t.equal(formatDuration(59_400), '59 s');
  t.equal(formatDuration(59_600), '1 min 0 s');
  t.equal(formatDuration(250_000), '4 min 10 s');
  t.equal(formatDuration(7_500_000), '2 h 5 min');
  t.end();
});

t.test('counts', (t) => {
  t.equal(count(0, 'path'), '0 paths');
  t.equal(count(1, 'path'), '1 path');
  t.equal(count(2, 'path'), '2 paths');
  t.end();
});
