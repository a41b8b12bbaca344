import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import t from 'tap';
import { resolveStorePath } from '../../nix/store/resolve.ts';
import { parseStoreDir } from '../../nix/store-path.ts';

const dir = realpathSync(mkdtempSync(join(tmpdir(), 'store-')));
t.teardown(() => rmSync(dir, { recursive: true, force: true }));
const storeDir = parseStoreDir(join(dir, 'store'));
const hello = `${'a'.repeat(32)}-hello`;
const lib = `${'b'.repeat(32)}-lib`;
mkdirSync(join(storeDir, hello, 'bin'), { recursive: true });
mkdirSync(join(storeDir, lib));
writeFileSync(join(storeDir, hello, 'bin', 'hello'), '');
symlinkSync(join(storeDir, lib), join(storeDir, hello, 'lib'));
mkdirSync(join(dir, 'work'));
const at = (name: string) => join(dir, 'work', name);
symlinkSync(join(storeDir, hello), at('result'));
symlinkSync('result', at('again'));
symlinkSync(`../work/result/bin`, at('bin'));
symlinkSync(dir, at('up'));
symlinkSync('loop', at('loop'));
symlinkSync(join(storeDir, 'garbage'), at('malformed'));
symlinkSync('nowhere', at('dangling'));

t.test('a path in the store, a link to it and what lies below', async (t) => {
  for (const argument of [
    join(storeDir, hello),
    join(storeDir, hello, 'bin', 'hello'),
    `${join(storeDir, hello)}/`,
    at('result'),
    at('result/bin/hello'),
    at('again/bin'),
    at('bin/hello'),
    at('up/work/result'),
    at(`up/store/${hello}`),
    relative(process.cwd(), at('result')),
  ]) {
    t.equal(resolveStorePath(argument, storeDir), hello, argument);
  }
  t.equal(resolveStorePath(at('result/lib/libx.so'), storeDir), hello, 'links inside the store stay');
  t.equal(resolveStorePath(join(storeDir, lib), storeDir), lib);
  const collected = join(storeDir, `${'c'.repeat(32)}-gone`);
  t.equal(resolveStorePath(collected, storeDir), `${'c'.repeat(32)}-gone`, 'it need not exist');
});

t.test('what is no store path is refused with a hint', async (t) => {
  for (const [argument, code] of [
    [dir, 'not_in_store'],
    ['/', 'not_in_store'],
    [storeDir, 'not_in_store'],
    [`${storeDir}-other`, 'no_such_file'],
    [at('loop'), 'not_in_store'],
    [at('dangling'), 'no_such_file'],
    [at('missing/result'), 'no_such_file'],
    [at('malformed'), 'bad_store_path'],
    [join(storeDir, '.links'), 'bad_store_path'],
    [`${storeDir}/../work`, 'not_in_store'],
  ] as const) {
    t.throws(() => resolveStorePath(argument, storeDir), { code, hint: /./ }, argument);
  }
});
