import fc from 'fast-check';
import t from 'tap';
import { parseRange } from '../../api/byte-range.ts';

t.test('a range lies within the file and has the bytes that were asked for', (t) => {
  const size = fc.integer({ min: 1, max: 1_000_000 });
  const number = fc.integer({ min: 0, max: 2_000_000 });
  fc.assert(
    fc.property(size, number, number, (size, a, b) => {
      const [first, last] = [Math.min(a, b), Math.max(a, b)];
      const range = parseRange(`bytes=${first}-${last}`, size);
      if (first >= size) return range === 'unsatisfiable';
      if (range === undefined || range === 'unsatisfiable') return false;
      return range.start === first && range.end === Math.min(last + 1, size);
    }),
  );
  fc.assert(
    fc.property(size, number, (size, length) => {
      const range = parseRange(`bytes=-${length}`, size);
      if (length === 0) return range === 'unsatisfiable';
      if (range === undefined || range === 'unsatisfiable') return false;
      return range.end === size && range.end - range.start === Math.min(length, size);
    }),
  );
  t.end();
});

t.test('what is not one range of bytes asks for the whole', (t) => {
  for (const header of [
    undefined,
    '',
    'bytes',
    'bytes=',
    'bytes=-',
    'bytes=1-2,3-4',
    'bytes=2-1',
    'x=0-1',
    'bytes=-1-2',
  ]) {
    t.equal(parseRange(header, 10), undefined, `${header}`);
  }
  fc.assert(
    fc.property(fc.string(), (text) => parseRange(text, 10) === undefined || text.startsWith('bytes=')),
  );
  t.end();
});
