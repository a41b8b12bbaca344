import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { ROOT } from '../support/house.ts';

const MOST_LINES = 450;
/** Written so that it does not find itself. */
const UNDONE = /\b(?:TO[D]O|FIX[M]E)\b/;

const files = ['nix', 'api', 'server', 'agent', 'cli', 'test', 'bench'].flatMap((dir) =>
  readdirSync(join(ROOT, dir), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => join(entry.parentPath, entry.name)),
);
const texts = files.map((file) => ({
  name: file.slice(ROOT.length),
  lines: readFileSync(file, 'utf8').trimEnd().split('\n'),
}));

t.test('files stay small', async (t) => {
  t.ok(texts.length > 100, 'the files are found');
  const large = texts.filter(({ lines }) => lines.length > MOST_LINES);
  t.same(
    large.map(({ name, lines }) => `${name}: ${lines.length} lines`),
    [],
  );
});

t.test('nothing is left undone', async (t) => {
  const marks = texts.flatMap(({ name, lines }) =>
    lines.flatMap((line, at) => (UNDONE.test(line) ? [`${name}:${at + 1}`] : [])),
  );
  t.same(marks, []);
});
