import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { DaemonStore } from '../../nix/store/daemon/store.ts';
import { openLocalStore } from '../../nix/store/open.ts';
import { SqliteStore } from '../../nix/store/sqlite.ts';
import { DEFAULT_STORE_DIR, parseFullPath } from '../../nix/store-path.ts';
import { closureExpr, createNixSandbox, NO_NIX, nixAvailable } from '../support/nix.ts';

function emptyDirectory(t: Test): string {
  const dir = mkdtempSync(join(tmpdir(), 'store-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** A PATH whose nix-daemon does not work, wherever a real one may be. */
function withoutDaemon(t: Test): string {
  const dir = emptyDirectory(t);
  writeFileSync(join(dir, 'nix-daemon'), '#!/bin/sh\nexit 1\n', { mode: 0o755 });
  return dir;
}

t.test('where there is no Nix, it says so', async (t) => {
  const dir = emptyDirectory(t);
  const nowhere = { NIX_STATE_DIR: join(dir, 'none'), PATH: dir };
  await t.rejects(openLocalStore(nowhere), { code: 'no_nix', hint: /Install Nix/ });
});

t.test('what keeps the database from being read is told, each with a hint', async (t) => {
  const dir = emptyDirectory(t);
  const env = { NIX_STATE_DIR: dir, PATH: withoutDaemon(t) };
  const refused = async (code: string, hint: RegExp) => {
    t.throws(() => new SqliteStore(DEFAULT_STORE_DIR, dir), { code, hint });
    await t.rejects(openLocalStore(env), { code, hint });
  };
  await refused('no_database', /NIX_STATE_DIR/);
  const db = join(dir, 'db');
  mkdirSync(db);
  writeFileSync(join(db, 'schema'), '11');
  await refused('unsupported_schema', /daemon/);
  writeFileSync(join(db, 'schema'), '10');
  await refused('store_unreadable', /daemon/);
  writeFileSync(join(db, 'db.sqlite'), 'no database at all, but some text instead'.repeat(200));
  await refused('store_unreadable', /daemon/);
});

t.test('stores of other machines and kinds are refused', async (t) => {
  for (const remote of ['ssh://host', 'https://cache.example.org', '/chroot', 'unix:///socket?root=/x']) {
    await t.rejects(openLocalStore({ NIX_REMOTE: remote }), { code: 'unsupported_store', message: remote });
  }
  const socket = join(emptyDirectory(t), 'socket');
  await t.rejects(openLocalStore({ NIX_REMOTE: `unix://${socket}` }), { code: 'daemon_unreachable' });
});

t.test('with the real Nix', { skip: nixAvailable() ? false : NO_NIX }, async (t) => {
  const nix = createNixSandbox(t);
  const [top] = await nix.build(closureExpr(2));
  const { path } = parseFullPath(top!);

  await t.test('the database serves, and a daemon of our own protects', async (t) => {
    for (const remote of [undefined, '', 'auto', 'local', 'daemon']) {
      const env = remote === undefined ? nix.env : { ...nix.env, NIX_REMOTE: remote };
      const { store, database } = await openLocalStore(env);
      t.equal(store, database);
      t.equal((await store.queryClosure([path])).length, 2);
    }
    const { tempRoots } = await openLocalStore(nix.env);
    const roots = await tempRoots();
    await roots.add(path);
    await nix.must('nix-store', ['--gc']);
    t.equal(nix.storeNames().length, 2);
    await roots.close();
    await roots.close();
    await t.rejects(roots.add(path), { code: 'store_closed' });
  });

  await t.test('where nothing can protect, tempRoots() says so', async (t) => {
    const { tempRoots } = await openLocalStore({ ...nix.env, PATH: withoutDaemon(t) });
    await t.rejects(tempRoots(), { code: 'no_temp_roots', hint: /./ });
  });

  await t.test(
    'a socket that was chosen is asked, and the daemon where the database is no use',
    async (t) => {
      await nix.build(closureExpr(2));
      const daemon = await nix.startDaemon();
      const chosen = { NIX_STORE_DIR: nix.storeDir, NIX_REMOTE: `unix://${nix.socketPath}` };
      const elsewhere = { ...nix.env, NIX_STATE_DIR: emptyDirectory(t) };
      for (const env of [chosen, elsewhere]) {
        const { store, database, tempRoots } = await openLocalStore(env);
        t.equal(database, undefined);
        t.ok(store instanceof DaemonStore);
        t.equal((await store.queryClosure([path])).length, 2);
        const roots = await tempRoots();
        await roots.add(path);
        await roots.close();
        await store.close();
      }
      await daemon.stop();
    },
  );
});
