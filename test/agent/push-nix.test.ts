import { spawnSync } from 'node:child_process';
import { zstdDecompressSync } from 'node:zlib';
import t from 'tap';
import { push } from '../../agent/push/push.ts';
import { openLocalStore } from '../../nix/store/open.ts';
import { parseFullPath } from '../../nix/store-path.ts';
import { FakeOrigin, hashOf } from '../support/fake-origin.ts';
import { closureExpr, createNixSandbox, NO_NIX, nixAvailable } from '../support/nix.ts';

t.test('the closure of a real store', { skip: !nixAvailable() && NO_NIX }, async (t) => {
  const nix = createNixSandbox(t);
  const [root] = (await nix.build(closureExpr(8))) as [string];
  const closure = (await nix.must('nix-store', ['-qR', root])).split('\n');
  const origin = await FakeOrigin.start();
  t.teardown(() => origin.close());
  for (const way of ['database', 'daemon']) {
    origin.entries.clear();
    if (way === 'daemon') await nix.startDaemon();
    const env = way === 'daemon' ? { ...nix.env, NIX_REMOTE: `unix://${nix.socketPath}` } : nix.env;
    const { store } = await openLocalStore(env);
    t.teardown(() => store.close());
    const roots = [parseFullPath(root).path];
    const summary = await push({ origin: origin.client(), cache: origin.cache, store, roots });
    t.match(summary, { closure: 8, pushed: 8, failed: [] }, way);
    t.same([...origin.entries.keys()].sort(), closure.map(hashOf).sort());
    for (const path of closure) {
      const { entry, file } = origin.entries.get(hashOf(path))!;
      const { stdout: nar } = spawnSync('nix-store', ['--dump', path], { env: nix.env });
      t.ok(zstdDecompressSync(file).equals(nar), path);
      t.equal(entry.path, path);
      t.equal(entry.narHash, await nix.must('nix-store', ['-q', '--hash', path]));
      t.equal(String(entry.narSize), await nix.must('nix-store', ['-q', '--size', path]));
      const references = await nix.must('nix-store', ['-q', '--references', path]);
      t.same(entry.references.map((name) => `${nix.storeDir}/${name}`).join('\n'), references);
      t.equal(`${nix.storeDir}/${entry.deriver}`, await nix.must('nix-store', ['-q', '--deriver', path]));
    }
  }
});
