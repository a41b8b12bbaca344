import { createHash } from 'node:crypto';
import fc from 'fast-check';
import t from 'tap';
import { BASE32_ALPHABET, base32Length, decodeBase32, encodeBase32 } from '../../nix/base32.ts';

t.test('digests that Nix itself prints', async (t) => {
  const empty = (algorithm: string) => createHash(algorithm).digest();
  t.equal(encodeBase32(empty('sha256')), '0mdqa9w1p6cmli6976v4wi0sw9r4p5prkj7lzfd1877wk11c9c73');
  t.equal(encodeBase32(empty('sha1')), '143xibwh31h9bvxzalr0sjvbbvpa6ffs');
  t.equal(encodeBase32(Buffer.alloc(0)), '');
  t.same([20, 32, 64].map(base32Length), [32, 52, 103]);
});

t.test('what is encoded decodes to the same bytes', async () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 80 }), (bytes) => {
      const text = encodeBase32(bytes);
      return text.length === base32Length(bytes.length) && decodeBase32(text).equals(bytes);
    }),
    { numRuns: 300 },
  );
});

t.test('every text decodes to bytes that encode to it, or not at all', async () => {
  const text = fc.string({ unit: fc.constantFrom(...BASE32_ALPHABET), maxLength: 60 });
  fc.assert(
    fc.property(text, (digits) => {
      let bytes: Buffer;
      try {
        bytes = decodeBase32(digits);
      } catch {
        return true;
      }
      return encodeBase32(bytes) === digits;
    }),
    { numRuns: 500 },
  );
});

t.test('refused', async (t) => {
  const valid = encodeBase32(createHash('sha256').update('x').digest());
  for (const [what, text] of [
    ['a letter outside of the alphabet', `e${valid.slice(1)}`],
    ['upper case', valid.toUpperCase()],
    ['a letter beyond ASCII', `ı${valid.slice(1)}`],
    ['bits left over', `2${valid.slice(1)}`],
    ['a length that no number of bytes has', '0'.repeat(54)],
    ['a lone digit', '0'],
  ] as const) {
    t.throws(() => decodeBase32(text), { name: 'FormatError', code: 'bad_base32' }, what);
  }
});
