import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { ListingBuilder } from '../../nix/nar/listing.ts';
import { NarParser } from '../../nix/nar/parse.ts';
import { writeNar } from '../../nix/nar/write.ts';
import { directory, encodeNar, file, symlink, trees, writeTree } from '../support/nar-tree.ts';
import { NO_NIX, nixAvailable } from '../support/nix.ts';

const withoutNix = nixAvailable() ? false : NO_NIX;

t.test('Nix dumps the same bytes', { skip: withoutNix }, async (t) => {
  const base = t.testdir();
  let count = 0;
  fc.assert(
    fc.property(trees(), (tree) => {
      const path = join(base, `${count++}`);
      writeTree(Buffer.from(path), tree);
      t.ok(execFileSync('nix-store', ['--dump', path]).equals(Buffer.concat([...writeNar(path)])));
    }),
    { numRuns: 25 },
  );
});

t.test(
  'Nix unpacks what is written, and the parser takes what Nix dumps',
  { skip: withoutNix },
  async (t) => {
    const base = t.testdir();
    const tree = directory({
      bin: directory({ run: file('#!/bin/sh\n', true), link: symlink('run'), dangling: symlink('/nowhere') }),
      empty: directory(),
      nothing: file(''),
      large: file(Buffer.alloc(100_001, 'large ')),
    });
    writeTree(Buffer.from(join(base, 'tree')), tree);
    const nar = Buffer.concat([...writeNar(join(base, 'tree'))]);
    execFileSync('nix-store', ['--restore', join(base, 'restored')], { input: nar });
    const dumped = execFileSync('nix-store', ['--dump', join(base, 'restored')]);
    t.ok(dumped.equals(nar));
    t.ok(dumped.equals(encodeNar(tree)));
    const parser = new NarParser();
    parser.write(dumped);
    parser.end();
  },
);

t.test('Nix lists the same', { skip: withoutNix }, async (t) => {
  const nar = encodeNar(
    directory({
      bin: directory({ run: file('run', true), sh: symlink('/bin/sh') }),
      empty: directory(),
      nothing: file(''),
      some: file('some'),
    }),
  );
  const path = join(t.testdir(), 'listed.nar');
  writeFileSync(path, nar);
  const listed = execFileSync('nix', [
    ...['--extra-experimental-features', 'nix-command'],
    ...['nar', 'ls', '--json', '--recursive', path, '/'],
  ]);
  const builder = new ListingBuilder();
  new NarParser(builder.visitor).write(nar);
  // Nix 2.8 leaves `executable` out where it is false.
  const ours = JSON.stringify(builder.listing()?.root, (key, value) =>
    key === 'executable' && value === false ? undefined : value,
  );
  t.same(JSON.parse(ours), JSON.parse(listed.toString()));
});
