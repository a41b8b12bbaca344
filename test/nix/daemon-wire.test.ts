import { Readable } from 'node:stream';
import fc from 'fast-check';
import t from 'tap';
import { encode, MAX_LIST, MAX_STRING, WireReader, type WireValue } from '../../nix/store/daemon/wire.ts';

/** A reader of `bytes`, which come in pieces of `size`. */
function readerOf(bytes: Buffer, size = bytes.length): WireReader {
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size));
  return new WireReader(Readable.from(pieces), 1000);
}

t.test('the bytes are those of the protocol', async (t) => {
  t.equal(encode(1, '').toString('hex'), `01${'0'.repeat(14)}${'0'.repeat(16)}`);
  t.equal(encode('abc').toString('hex'), '0300000000000000' + '6162630000000000');
  t.equal(
    encode(['12345678', '']).toString('latin1'),
    '\x02\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\x0012345678\0\0\0\0\0\0\0\0',
  );
});

t.test('what is written is read back, however the stream is cut', async () => {
  const value = fc.oneof(
    fc.maxSafeNat(),
    fc.string({ unit: 'grapheme' }),
    fc.array(fc.string(), { maxLength: 5 }),
  );
  const values = fc.array(value, { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(values, fc.integer({ min: 1, max: 40 }), async (sent, size) => {
      const reader = readerOf(encode(...sent), size);
      const got: WireValue[] = [];
      for (const one of sent) {
        if (typeof one === 'number') got.push(await reader.number());
        else if (typeof one === 'string') got.push(await reader.text());
        else got.push(await reader.texts());
      }
      t.same(got, sent);
    }),
    { numRuns: 100 },
  );
});

t.test('sizes from outside are bounded before anything is read', async (t) => {
  await t.rejects(readerOf(encode(MAX_STRING + 1)).text(), { code: 'daemon_protocol' });
  await t.rejects(readerOf(encode(MAX_LIST + 1)).texts(), { code: 'daemon_protocol' });
  await t.rejects(readerOf(Buffer.alloc(8, 0xff)).number(), { code: 'daemon_protocol' });
  await t.rejects(readerOf(Buffer.alloc(8, 0xff)).text(), { code: 'daemon_protocol' });
});

t.test('a stream that ends too early, and one that stands still', async (t) => {
  await t.rejects(readerOf(encode('hello').subarray(0, 12)).text(), { code: 'daemon_closed' });
  await t.rejects(readerOf(Buffer.alloc(0)).number(), { code: 'daemon_closed' });
  const still = new WireReader(new Readable({ read() {} }), 20);
  await t.rejects(still.number(), { code: 'daemon_timeout' });
});

t.test('some() gives what is there, unread() puts it back', async (t) => {
  const reader = readerOf(Buffer.from('abcdefgh'), 4);
  t.equal(String(await reader.some(3)), 'abc');
  t.equal(String(await reader.some(3)), 'd');
  reader.unread(Buffer.from('xy'));
  t.equal(String(await reader.some(9)), 'xy');
  t.equal(String(await reader.some(9)), 'efgh');
});
