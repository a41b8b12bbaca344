import { execFileSync } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { DaemonConnection } from '../../nix/store/daemon/connection.ts';
import { addTempRoot } from '../../nix/store/daemon/operations.ts';
import { DaemonStore } from '../../nix/store/daemon/store.ts';
import { connectSocket, spawnDaemon } from '../../nix/store/daemon/transport.ts';
import {
  hashPart,
  parseFullPath,
  parseStoreDir,
  parseStorePath,
  parseStorePathHash,
} from '../../nix/store-path.ts';
import { closureExpr, createNixSandbox, type NixSandbox, NO_NIX, nixAvailable } from '../support/nix.ts';

if (!nixAvailable()) {
  t.plan(0, NO_NIX);
  process.exit();
}

const absent = parseStorePath(`${'z'.repeat(32)}-absent`);

function storeOf(t: Test, nix: NixSandbox): DaemonStore {
  const connect = async () => DaemonConnection.open(await connectSocket(nix.socketPath));
  const store = new DaemonStore(nix.storeDir, connect);
  t.teardown(() => store.close());
  return store;
}

async function collect(chunks: AsyncIterable<Buffer>): Promise<Buffer> {
  const all: Buffer[] = [];
  for await (const chunk of chunks) all.push(Buffer.from(chunk));
  return Buffer.concat(all);
}

t.test('the real handshake, over the socket and over pipes', async (t) => {
  const nix = createNixSandbox(t);
  await nix.startDaemon();
  const version = (await nix.must('nix', ['--version'])).split(' ').at(-1);
  for (const transport of [await connectSocket(nix.socketPath), await spawnDaemon(nix.env)]) {
    const connection = await DaemonConnection.open(transport);
    t.equal(connection.nixVersion, version);
    connection.close();
  }
});

t.test('what is valid, by path and by hash', async (t) => {
  const nix = createNixSandbox(t);
  const { path } = parseFullPath((await nix.build(closureExpr(1)))[0]!);
  await nix.startDaemon();
  const store = storeOf(t, nix);
  t.equal(await store.isValidPath(path), true);
  t.equal(await store.isValidPath(absent), false);
  t.equal(await store.queryPathFromHashPart(hashPart(path)), path);
  t.equal(await store.queryPathFromHashPart(parseStorePathHash('z'.repeat(32))), undefined);
});

t.test('a daemon of another store directory refuses in its own words', async (t) => {
  const nix = createNixSandbox(t);
  const connection = await DaemonConnection.open(await spawnDaemon(nix.env));
  t.teardown(() => connection.close());
  const answer = addTempRoot(connection, parseStoreDir('/elsewhere/store'), absent);
  await t.rejects(answer, { code: 'daemon_error', message: 'is not in the Nix store' });
});

t.test('a NAR is what nix-store --dump writes, large and small', async (t) => {
  const nix = createNixSandbox(t);
  const [small] = await nix.build(closureExpr(1));
  writeFileSync(join(nix.dir, 'large'), Buffer.alloc(9_000_001, 'large '));
  const large = await nix.must('nix-store', ['--add', join(nix.dir, 'large')]);
  await nix.startDaemon();
  const store = storeOf(t, nix);
  for (const full of [small!, large]) {
    const dumped = execFileSync('nix-store', ['--dump', full], { maxBuffer: 64 << 20 });
    t.ok((await collect(store.readNar(parseFullPath(full).path))).equals(dumped));
  }
  // Left in the middle, it lets the daemon go and the store stays usable.
  for await (const chunk of store.readNar(parseFullPath(large).path)) {
    t.ok(chunk.length > 0);
    break;
  }
  t.equal(await store.isValidPath(parseFullPath(large).path), true);
  await t.rejects(collect(store.readNar(absent)), { code: 'invalid_path' });
});

t.test('files that are gone or changed though their path is valid', async (t) => {
  const nix = createNixSandbox(t);
  const [gone] = await nix.build(closureExpr(1, 'gone'));
  const [changed] = await nix.build(closureExpr(1, 'here'));
  await nix.startDaemon();
  const store = storeOf(t, nix);
  execFileSync('chmod', ['-R', 'u+w', nix.realStoreDir]);
  rmSync(gone!, { recursive: true });
  writeFileSync(join(changed!, 'bin', 'hello'), '#!/bin/sh\necho here 1 \nexit\n');
  // The daemon says so in the middle of what should be the NAR.
  await t.rejects(collect(store.readNar(parseFullPath(gone!).path)), {
    code: 'nar_failed',
    message: /^the Nix daemon says: .*No such file or directory/,
  });
  const outcome = collect(store.readNar(parseFullPath(changed!).path));
  await t.rejects(outcome, { code: 'nar_mismatch' });
});

for (const how of ['socket', 'child'] as const) {
  t.test(`a temp root keeps a closure from being collected while it is held: ${how}`, async (t) => {
    const nix = createNixSandbox(t);
    const [top] = await nix.build(closureExpr(3));
    const kept = nix.storeNames();
    if (how === 'socket') await nix.startDaemon();
    const transport = how === 'socket' ? await connectSocket(nix.socketPath) : await spawnDaemon(nix.env);
    const connection = await DaemonConnection.open(transport);
    await addTempRoot(connection, nix.storeDir, parseFullPath(top!).path);
    await addTempRoot(connection, nix.storeDir, absent);
    await nix.must('nix-store', ['--gc']);
    t.same(nix.storeNames(), kept);
    connection.close();
    // The daemon's process notices the end of the connection a moment later.
    for (let attempt = 0; existsSync(top!) && attempt < 50; attempt++) await nix.must('nix-store', ['--gc']);
    t.same(nix.storeNames(), []);
  });
}

t.test('a store outlives the restart of the daemon', async (t) => {
  const nix = createNixSandbox(t);
  const { path } = parseFullPath((await nix.build(closureExpr(1)))[0]!);
  const store = storeOf(t, nix);
  await t.rejects(store.isValidPath(path), { code: 'daemon_unreachable' });
  const daemon = await nix.startDaemon();
  t.equal(await store.isValidPath(path), true);
  await daemon.stop();
  await nix.startDaemon();
  t.equal(await store.isValidPath(path), true);
  t.equal((await store.queryClosure([path])).length, 1);
});
