import fc from 'fast-check';
import t from 'tap';
import { BASE32_ALPHABET } from '../../nix/base32.ts';
import {
  fullPath,
  hashPart,
  namePart,
  parseFullPath,
  parseStoreDir,
  parseStorePath,
  parseStorePathHash,
} from '../../nix/store-path.ts';

const HASH = '7h7qgvs4kgzsn8a6rb273saxyqh4jxlz';

const storePaths = fc
  .tuple(
    fc.string({ unit: fc.constantFrom(...BASE32_ALPHABET), minLength: 32, maxLength: 32 }),
    fc.stringMatching(/^[0-9A-Za-z+_?=-][0-9A-Za-z+\-._?=]{0,40}$/),
  )
  .map(([hash, name]) => ({ hash, name }));

t.test('a path is taken apart and put together', async () => {
  fc.assert(
    fc.property(storePaths, ({ hash, name }) => {
      const { storeDir, path } = parseFullPath(`/nix/store/${hash}-${name}`);
      return (
        storeDir === '/nix/store' &&
        hashPart(path) === hash &&
        namePart(path) === name &&
        fullPath(storeDir, path) === `/nix/store/${hash}-${name}`
      );
    }),
    { numRuns: 200 },
  );
});

t.test('names at the limits', async (t) => {
  for (const name of ['a', 'a'.repeat(211), '+', '-', '_', '?', '=', '...', '.a', '..a', '.git', 'a-.']) {
    t.equal(parseStorePath(`${HASH}-${name}`), `${HASH}-${name}`, name);
  }
  for (const name of ['', 'a'.repeat(212), 'a/b', 'a b', 'ä', 'a\n', 'a\0', 'a,b', '.', '..', '.-', '..-x']) {
    t.throws(
      () => parseStorePath(`${HASH}-${name}`),
      { name: 'FormatError', code: 'bad_store_path' },
      JSON.stringify(name),
    );
  }
});

t.test('hash parts', async (t) => {
  t.equal(parseStorePathHash(HASH), HASH);
  for (const text of [HASH.slice(1), `${HASH}0`, `e${HASH.slice(1)}`, HASH.toUpperCase(), `${HASH}\n`, '']) {
    t.throws(() => parseStorePathHash(text), { code: 'bad_store_path' }, JSON.stringify(text));
    t.throws(() => parseStorePath(`${text}-name`), { code: 'bad_store_path' }, JSON.stringify(text));
  }
});

t.test('store directories', async (t) => {
  for (const dir of ['/nix/store', '/a', '/home/me/.local/share/nix/store', '/...', '/a..b/c']) {
    t.equal(parseStoreDir(dir), dir);
  }
  for (const dir of [
    ...[
      '',
      '/',
      'nix/store',
      '/nix/store/',
      '/nix//store',
      '/nix/../store',
      '/nix/.',
      '/a b',
      '/a,b',
      '/a;b',
    ],
    ...['/a\nb', '/a\0', `/${'a'.repeat(1024)}`],
  ]) {
    t.throws(
      () => parseStoreDir(dir),
      { name: 'FormatError', code: 'bad_store_dir' },
      JSON.stringify(dir.slice(0, 20)),
    );
  }
});

t.test('a full path is a store path and nothing below or above it', async (t) => {
  for (const text of [
    `${HASH}-a`,
    `/${HASH}-a`,
    '/nix/store',
    `/nix/store/${HASH}-a/bin`,
    `/nix/store/${HASH}-a/`,
  ]) {
    t.throws(() => parseFullPath(text), { name: 'FormatError' }, text);
  }
});
