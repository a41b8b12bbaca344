import t from 'tap';
import { ListingBuilder, type NarListing } from '../../nix/nar/listing.ts';
import { NarParser } from '../../nix/nar/parse.ts';
import { directory, encodeNar, file, symlink, type Tree } from '../support/nar-tree.ts';

function list(tree: Tree, options?: { maxEntries: number }): NarListing | undefined {
  const builder = new ListingBuilder(options);
  const parser = new NarParser(builder.visitor);
  parser.write(encodeNar(tree));
  parser.end();
  return builder.listing();
}

/** A text's UTF-8, as names in trees have it. */
function utf8(text: string): string {
  return Buffer.from(text).toString('latin1');
}

t.test('every kind of node', async (t) => {
  const tree = directory({
    bin: directory({ hello: file('hello!', true), sh: symlink('/bin/sh') }),
    empty: directory(),
    [utf8('größe.txt')]: file('12345'),
  });
  const nar = encodeNar(tree);
  t.same(JSON.parse(JSON.stringify(list(tree))), {
    version: 1,
    root: {
      type: 'directory',
      entries: {
        bin: {
          type: 'directory',
          entries: {
            hello: { type: 'regular', size: 6, executable: true, narOffset: nar.indexOf('hello!') },
            sh: { type: 'symlink', target: '/bin/sh' },
          },
        },
        empty: { type: 'directory', entries: {} },
        'größe.txt': { type: 'regular', size: 5, executable: false, narOffset: nar.indexOf('12345') },
      },
    },
  });
});

t.test('a root that is no directory', async (t) => {
  const hello = { type: 'regular', size: 5, executable: false, narOffset: 96 };
  t.same(list(file('hello')), { version: 1, root: hello });
  t.same(list(symlink('x')), { version: 1, root: { type: 'symlink', target: 'x' } });
});

t.test('a name that means something to JavaScript is a name', async (t) => {
  const tree = directory({ ['__proto__']: directory({ constructor: file('x') }), toString: file('') });
  const text = JSON.stringify(list(tree));
  t.match(text, /"__proto__":\{"type":"directory","entries":\{"constructor":/);
  t.match(text, /"toString":\{/);
});

t.test('what JSON cannot say has no listing', async (t) => {
  t.equal(list(directory({ a: directory({ '\xff': file('') }), b: file('') })), undefined);
  t.equal(list(directory({ '\xff': directory({ a: file('') }) })), undefined);
  t.equal(list(directory({ a: symlink(Buffer.from([0xff])), b: file('') })), undefined);
});

t.test('there is a limit', async (t) => {
  const tree = directory({ a: file(''), b: directory({ c: symlink('a') }) });
  t.ok(list(tree, { maxEntries: 4 }));
  t.equal(list(tree, { maxEntries: 3 }), undefined);
});

t.test('before the NAR began there is none', async (t) => {
  t.equal(new ListingBuilder().listing(), undefined);
});
