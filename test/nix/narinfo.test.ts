import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { BASE32_ALPHABET } from '../../nix/base32.ts';
import { COMPRESSIONS } from '../../nix/compression/names.ts';
import { sha256FromBytes } from '../../nix/hash.ts';
import { generateSecretKey, sign, verifyAny } from '../../nix/keys.ts';
import { fingerprint, type NarInfo, parseNarInfo, renderNarInfo, sortReferences } from '../../nix/narinfo.ts';
import { parseStoreDir, parseStorePath } from '../../nix/store-path.ts';
import { createNixSandbox, NO_NIX, nixAvailable } from '../support/nix.ts';

const HASH = '0mdqa9w1p6cmli6976v4wi0sw9r4p5prkj7lzfd1877wk11c9c73';
const A = `${'a'.repeat(32)}-a`;
const B = `${'b'.repeat(32)}-b`;
const KEY = generateSecretKey('test-1');
const SIGNATURE = sign(KEY, 'x');

const EXAMPLE = `StorePath: /nix/store/${A}
URL: nar/${HASH}.nar.zst
Compression: zstd
FileHash: sha256:${HASH}
FileSize: 10
NarHash: sha256:${HASH}
NarSize: 120
References: ${A} ${B}
Deriver: ${A}.drv
Sig: ${SIGNATURE}
CA: fixed:r:sha256:${HASH}
`;

t.test('an example is read and written back', async (t) => {
  const info = parseNarInfo(EXAMPLE);
  t.match(info, { path: A, narSize: 120, references: [A, B], deriver: `${A}.drv`, signatures: [SIGNATURE] });
  t.equal(renderNarInfo(info), EXAMPLE);
  t.equal(
    fingerprint(info),
    `1;/nix/store/${A};sha256:${HASH};120;/nix/store/${A},/nix/store/${B}`,
    'the fingerprint names full paths',
  );
  t.match(fingerprint({ ...info, references: [] }), /;120;$/);
});

t.test('what may be left out', async (t) => {
  const bare = `StorePath: /nix/store/${A}\nURL: nar/x.nar\nNarHash: sha256:${HASH}\nNarSize: 120\nReferences: \n`;
  const info = parseNarInfo(`${bare}Future: whatever\nDeriver: unknown-deriver\nCA: \n`);
  t.equal(info.compression, 'bzip2', 'the default of the first days');
  t.same(info.references, []);
  t.equal(info.deriver, undefined);
  t.equal(info.ca, undefined);
  t.match(renderNarInfo(info), /^References: $/m, 'an empty list keeps its space');
});

t.test('refused', async (t) => {
  const change = (from: string | RegExp, to: string) => {
    const text = EXAMPLE.replace(from, to);
    if (text === EXAMPLE) throw new Error(`the example has no ${from}`);
    return text;
  };
  for (const [what, text] of Object.entries({
    empty: '',
    'no final newline': EXAMPLE.slice(0, -1),
    'a blank line': change('\nURL', '\n\nURL'),
    CRLF: EXAMPLE.replaceAll('\n', '\r\n'),
    'no space behind the colon': change('References: ', 'References:'),
    'no StorePath': change(/^StorePath.*\n/, ''),
    'no URL': change(/URL.*\n/, ''),
    'an empty URL': change(/URL: .*/, 'URL: '),
    'no NarHash': change(/NarHash.*\n/, ''),
    'no NarSize': change(/NarSize.*\n/, ''),
    'a NarSize of 0': change('NarSize: 120', 'NarSize: 0'),
    'a negative NarSize': change('NarSize: 120', 'NarSize: -1'),
    'a NarSize beyond all numbers': change('NarSize: 120', 'NarSize: 99999999999999999999'),
    'a NarSize in hex': change('NarSize: 120', 'NarSize: 0x10'),
    'another algorithm': change('NarHash: sha256', 'NarHash: sha512'),
    'an unknown compression': change('zstd\n', 'lz4\n'),
    'a reference with its directory': change(` ${B}`, ` /nix/store/${B}`),
    'a double space': change(` ${B}`, `  ${B}`),
    'an empty deriver': change(/Deriver: .*/, 'Deriver: '),
    'a malformed signature': change(/Sig: .*/, 'Sig: test-1:AAAA'),
    'two StorePaths': `${EXAMPLE}StorePath: /nix/store/${B}\n`,
    'two NarHashes': `${EXAMPLE}NarHash: sha256:${HASH}\n`,
    'a path below a store path': change(`/nix/store/${A}`, `/nix/store/${A}/bin`),
  })) {
    t.throws(() => parseNarInfo(text), { name: 'FormatError' }, what);
  }
});

const hash = fc.uint8Array({ minLength: 32, maxLength: 32 }).map(sha256FromBytes);
const path = fc
  .tuple(
    fc.string({ unit: fc.constantFrom(...BASE32_ALPHABET), minLength: 32, maxLength: 32 }),
    fc.stringMatching(/^[0-9A-Za-z+_?=][0-9A-Za-z+\-._?=]{0,20}$/),
  )
  .map(([digits, name]) => parseStorePath(`${digits}-${name}`));
const size = fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
const maybe = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
const narInfos: fc.Arbitrary<NarInfo> = fc.record({
  storeDir: fc.constantFrom('/nix/store', '/home/me/store').map(parseStoreDir),
  path,
  narHash: hash,
  narSize: size,
  references: fc.array(path, { maxLength: 5 }).map(sortReferences),
  deriver: maybe(path),
  signatures: fc.array(
    fc.string().map((text) => sign(KEY, text)),
    { maxLength: 2 },
  ),
  ca: maybe(hash.map((digest) => `fixed:r:sha256:${digest}`)),
  url: fc.webPath().map((text) => `nar${text}`),
  compression: fc.constantFrom(...COMPRESSIONS),
  fileHash: maybe(hash),
  fileSize: maybe(size),
});

t.test('what is written is read back', async (t) => {
  fc.assert(
    fc.property(narInfos, (info) => {
      t.same(parseNarInfo(renderNarInfo(info)), info);
    }),
    { numRuns: 100 },
  );
});

t.test('no text does anything but parse or be refused', async () => {
  const lines = fc.constantFrom(...EXAMPLE.split('\n'), 'Sig: ', ': ', 'CA: x', '\0');
  fc.assert(
    fc.property(fc.array(lines, { maxLength: 14 }), (chosen) => {
      try {
        parseNarInfo(`${chosen.join('\n')}\n`);
        return true;
      } catch (error) {
        return (error as Error).name === 'FormatError';
      }
    }),
    { numRuns: 500 },
  );
});

t.test('references sort bytewise, each once', async (t) => {
  const [upper, lower, plus] = ['B', 'a', '+'].map((name) => parseStorePath(`${'a'.repeat(32)}-${name}`));
  t.same(sortReferences([lower!, upper!, plus!, lower!]), [plus, upper, lower]);
});

t.test('what Nix writes and signs', { skip: nixAvailable() ? false : NO_NIX }, async (t) => {
  const nix = createNixSandbox(t);
  const { dir } = nix;
  mkdirSync(join(dir, 'cache'));
  writeFileSync(join(dir, 'key'), KEY.exportText());
  writeFileSync(join(dir, 'alone'), 'nothing but itself');
  const shell = (name: string, script: string) =>
    `derivation { name = "${name}"; system = builtins.currentSystem; builder = "/bin/sh"; args = ["-c" ''${script}'']; }`;
  writeFileSync(
    join(dir, 'two.nix'),
    `let a = ${shell('a', 'echo a > $out')}; in ${shell('b', `echo \${a} $out > $out`)}`,
  );
  const alone = await nix.must('nix-store', ['--add', 'alone']);
  const two = await nix.must('nix-build', ['two.nix', '--no-out-link']);
  const to = `file://${join(dir, 'cache')}?compression=none&secret-key=${join(dir, 'key')}`;
  await nix.must('nix', ['copy', '--no-check-sigs', '--to', to, alone, two]);

  const texts = readdirSync(join(dir, 'cache'))
    .filter((name) => name.endsWith('.narinfo'))
    .map((name) => readFileSync(join(dir, 'cache', name), 'utf8'));
  t.equal(texts.length, 3);
  const infos = texts.map(parseNarInfo);
  for (const [i, info] of infos.entries()) {
    t.equal(renderNarInfo(info), texts[i], 'written as Nix writes it');
    t.same(info.signatures, [sign(KEY, fingerprint(info))], 'signed as Nix signs it');
    t.ok(verifyAny([KEY.publicKey], fingerprint(info), info.signatures));
  }
  t.same(
    infos.map((info) => info.references.length).sort(),
    [0, 0, 2],
    'there are paths with and without references',
  );
  t.equal(infos.filter((info) => info.ca !== undefined).length, 1);
});
