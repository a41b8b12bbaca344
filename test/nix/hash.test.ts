import { createHash } from 'node:crypto';
import fc from 'fast-check';
import t from 'tap';
import {
  formatSha256,
  parseSha256,
  parseSha256Base32,
  sha256FromBytes,
  sha256ToHex,
} from '../../nix/hash.ts';

const EMPTY = '0mdqa9w1p6cmli6976v4wi0sw9r4p5prkj7lzfd1877wk11c9c73';

t.test('every form Nix writes is read as the same hash', async (t) => {
  const digest = createHash('sha256').digest();
  for (const text of [
    `sha256:${EMPTY}`,
    `sha256:${digest.toString('hex')}`,
    `sha256:${digest.toString('hex').toUpperCase()}`,
    `sha256:${digest.toString('base64')}`,
    `sha256-${digest.toString('base64')}`,
  ]) {
    t.equal(parseSha256(text), EMPTY, text);
  }
  t.equal(parseSha256Base32(EMPTY), EMPTY);
});

t.test('from bytes and back', async () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 32, maxLength: 32 }), (bytes) => {
      const hash = sha256FromBytes(bytes);
      return (
        parseSha256(formatSha256(hash)) === hash && sha256ToHex(hash) === Buffer.from(bytes).toString('hex')
      );
    }),
    { numRuns: 200 },
  );
});

t.test('refused', async (t) => {
  const hex = createHash('sha256').digest('hex');
  for (const text of [
    '',
    EMPTY,
    `sha1:143xibwh31h9bvxzalr0sjvbbvpa6ffs`,
    `sha512:${EMPTY}`,
    `sha256:${EMPTY.slice(1)}`,
    `sha256:${EMPTY}0`,
    `sha256:2${EMPTY.slice(1)}`,
    `sha256:${hex.slice(1)}`,
    `sha256:g${hex.slice(1)}`,
    `sha256-${hex}`,
    `sha256-${EMPTY}`,
    `SHA256:${EMPTY}`,
    ` sha256:${EMPTY}`,
  ]) {
    t.throws(() => parseSha256(text), { name: 'FormatError' }, JSON.stringify(text));
  }
  t.throws(() => sha256FromBytes(Buffer.alloc(31)), { code: 'bad_hash' });
  t.throws(() => parseSha256Base32(hex), { code: 'bad_hash' });
});
