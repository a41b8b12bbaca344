import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import {
  generateSecretKey,
  parsePublicKey,
  parseSecretKey,
  parseSignature,
  sign,
  signatureKeyName,
  verifyAny,
} from '../../nix/keys.ts';
import { createNixSandbox, NO_NIX, nixAvailable } from '../support/nix.ts';

// RFC 8032, section 7.1, test 1: the signature of nothing.
const SEED = '9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60';
const PUBLIC = 'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a';
const SIGNATURE =
  'e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b';
const base64 = (hex: string) => Buffer.from(hex, 'hex').toString('base64');

t.test('the vector of the standard', async (t) => {
  const key = parseSecretKey(`test-1:${base64(SEED + PUBLIC)}\n`);
  t.equal(key.name, 'test-1');
  t.equal(key.publicKey.text, `test-1:${base64(PUBLIC)}`);
  t.equal(key.exportText(), `test-1:${base64(SEED + PUBLIC)}`);
  t.equal(sign(key, ''), `test-1:${base64(SIGNATURE)}`);
  t.equal(signatureKeyName(sign(key, '')), 'test-1');
});

t.test('a signature holds for its text and its key', async () => {
  const key = generateSecretKey('a-1');
  const trusted = [parsePublicKey(key.publicKey.text)];
  fc.assert(
    fc.property(fc.string(), fc.string(), (text, other) => {
      const signature = parseSignature(sign(key, text));
      return (
        verifyAny(trusted, text, [signature]) && (other === text || !verifyAny(trusted, other, [signature]))
      );
    }),
    { numRuns: 50 },
  );
});

t.test('any good signature is enough, found by the name of its key', async (t) => {
  const [mine, other] = [generateSecretKey('mine'), generateSecretKey('other')];
  const impostor = generateSecretKey('mine');
  const text = '1;/nix/store/x;…';
  t.ok(verifyAny([mine.publicKey], text, [sign(other, text), sign(mine, text)]));
  t.notOk(verifyAny([mine.publicKey], text, [sign(other, text)]), 'nobody trusts that key');
  t.notOk(verifyAny([mine.publicKey], text, [sign(impostor, text)]), 'another key of the same name');
  t.notOk(
    verifyAny([impostor.publicKey, mine.publicKey], text, [sign(mine, text)]),
    'the first of a name counts',
  );
  t.notOk(verifyAny([mine.publicKey], text, []));
  t.notOk(verifyAny([], text, [sign(mine, text)]));
});

t.test('refused', async (t) => {
  const both = Buffer.from(SEED + PUBLIC, 'hex');
  const good = both.toString('base64');
  for (const text of [
    '',
    'a',
    ':',
    `:${good}`,
    `a b:${good}`,
    'a:',
    `a:${good.slice(4)}`,
    `a:${good}!`,
    `a:b:${good}`,
  ]) {
    t.throws(() => parseSecretKey(text), { name: 'FormatError', code: 'bad_key' }, text);
    t.throws(() => parseSignature(text), { name: 'FormatError', code: 'bad_key' }, text);
    t.throws(() => parsePublicKey(text), { name: 'FormatError', code: 'bad_key' }, text);
  }
  t.throws(() => parsePublicKey(`a:${good}`), { code: 'bad_key' }, 'a secret key where a public one belongs');
  t.throws(() => parseSignature(`a:${good} `), { code: 'bad_key' }, 'a space behind a signature');
  t.throws(() => generateSecretKey('a:b'), { code: 'bad_key' });
  both[63] = both[63]! ^ 1;
  try {
    parseSecretKey(`leak:${both.toString('base64')}`);
    t.fail('two halves that do not belong together were taken');
  } catch (error) {
    t.match(error, { code: 'bad_key' });
    t.notMatch(
      (error as Error).message,
      both.toString('base64').slice(0, 12),
      'the message keeps the secret',
    );
  }
});

t.test('keys that Nix makes', { skip: nixAvailable() ? false : NO_NIX }, async (t) => {
  const nix = createNixSandbox(t);
  await nix.must('nix-store', ['--generate-binary-cache-key', 'made-1', 'secret', 'public']);
  const secret = readFileSync(join(nix.dir, 'secret'), 'utf8');
  const key = parseSecretKey(secret);
  t.equal(key.exportText(), secret.trim());
  t.equal(key.publicKey.text, readFileSync(join(nix.dir, 'public'), 'utf8').trim());
});
