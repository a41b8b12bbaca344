// The origin is killed again and again while a push runs; the last push completes it.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { parseCacheName } from '../../api/cache-name.ts';
import { generateSecretKey } from '../../nix/keys.ts';
import { parseNarInfo } from '../../nix/narinfo.ts';
import { hashToken } from '../../server/auth.ts';
import { openCatalogue } from '../../server/origin.ts';
import { createNixSandbox, NO_NIX, nixAvailable } from '../support/nix.ts';
import { BCACHE, Bcache, freePort } from '../support/service.ts';

/** 24 small paths and two of 40 MB of noise, which travel as uploads; `top` refers to all. */
const CLOSURE = `let
  make = name: script: derivation {
    inherit name; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" script ];
  };
  small = builtins.genList (n: make "small-\${toString n}" "echo \${toString n} > $out") 24;
  large = builtins.genList (n: make "large-\${toString n}" "/usr/bin/head -c 40000000 /dev/urandom > $out") 2;
in make "top" "echo \${toString (small ++ large)} > $out"`;

t.test('kill -9 of the origin during a push', { skip: nixAvailable() ? false : NO_NIX }, async (t) => {
  const nix = createNixSandbox(t);
  const [root] = (await nix.build(CLOSURE)) as [string];
  const state = mkdtempSync(join(tmpdir(), 'bcache-kill-'));
  t.teardown(() => rmSync(state, { recursive: true, force: true }));
  const catalogue = openCatalogue(state);
  await catalogue.createCache({
    name: parseCacheName('main'),
    public: true,
    priority: 30,
    key: generateSecretKey('main-1'),
  });
  const token = { name: 'push', user: 'test', hash: hashToken('secret'), permissions: ['push'] as const };
  await catalogue.createToken({ ...token, caches: ['main'] });
  await catalogue.close();

  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const env = { BCACHE_ORIGIN_URL: url, BCACHE_AUTH_TOKEN: 'secret' };
  const serve = async () => {
    const origin = new Bcache(['serve', '--state', state, '--port', String(port)], process.env);
    t.teardown(() => origin.stop('SIGKILL'));
    await origin.says('the origin listens');
    return origin;
  };
  const push = () => nix.run(process.execPath, [BCACHE, 'push', 'main', root], { env });

  for (const delay of [600, 900, 1200]) {
    const origin = await serve();
    const pushing = push();
    await new Promise((resolve) => setTimeout(resolve, delay));
    await origin.stop('SIGKILL');
    // Its retries meet a new origin, which may be killed as well; in the end it may succeed or give up.
    const next = await serve();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await next.stop('SIGKILL');
    const last = await serve();
    await pushing;
    await consistent();
    await last.stop('SIGKILL');
  }

  const origin = await serve();
  const { code, stdout, stderr } = await push();
  t.equal(code, 0, stderr);
  t.match(stdout, /pushed|all 27 paths/);
  t.equal(await consistent(), 27, 'complete');
  t.same(readdirSync(join(state, 'staging')), [], 'no staged file is left');
  const files = readdirSync(join(state, 'blobs'), { recursive: true }).filter((name) =>
    String(name).endsWith('.zst'),
  );
  t.equal(files.length, 27, 'no blob is left over');
  await origin.stop();

  /** Every narinfo there is has its NAR and its references. @returns how many there are */
  async function consistent(): Promise<number> {
    let present = 0;
    for (const path of (await nix.must('nix-store', ['-qR', root])).split('\n')) {
      const hash = path.slice(path.lastIndexOf('/') + 1).slice(0, 32);
      const answer = await fetch(`${url}/main/${hash}.narinfo`);
      if (answer.status === 404) continue;
      present++;
      const info = parseNarInfo(await answer.text());
      const nar = await fetch(`${url}/main/${info.url}`, { method: 'HEAD' });
      if (nar.status !== 200) t.fail(`the NAR of ${path} is missing`);
      for (const reference of info.references) {
        const { status } = await fetch(`${url}/main/${reference.slice(0, 32)}.narinfo`);
        if (status !== 200) t.fail(`${path} refers to ${reference}, which is missing`);
      }
    }
    return present;
  }
});
