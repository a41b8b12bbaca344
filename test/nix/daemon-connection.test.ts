import { createHash } from 'node:crypto';
import t from 'tap';
import { sha256FromBytes } from '../../nix/hash.ts';
import { type ConnectionOptions, DaemonConnection } from '../../nix/store/daemon/connection.ts';
import { MESSAGE } from '../../nix/store/daemon/messages.ts';
import { readNar } from '../../nix/store/daemon/nar.ts';
import {
  addTempRoot,
  isValidPath,
  queryPathFromHashPart,
  queryPathInfo,
} from '../../nix/store/daemon/operations.ts';
import { DaemonStore } from '../../nix/store/daemon/store.ts';
import { DEFAULT_STORE_DIR, parseStorePath, parseStorePathHash } from '../../nix/store-path.ts';
import { FakeDaemon } from '../support/fake-daemon.ts';

const CLIENT_MAGIC = 0x6e697863;
const SERVER_MAGIC = 0x6478696f;
const path = parseStorePath(`${'a'.repeat(32)}-hello`);
const other = parseStorePath(`${'b'.repeat(32)}-lib`);
const full = `/nix/store/${path}`;

/** A connection to a daemon that speaks 1.`minor`. */
async function connected(minor: number, options?: ConnectionOptions) {
  const daemon = new FakeDaemon();
  daemon.send(SERVER_MAGIC, 0x100 + minor);
  if (minor >= 38) daemon.send([]);
  if (minor >= 33) daemon.send('2.99.1');
  if (minor >= 35) daemon.send(1);
  daemon.send(MESSAGE.last);
  const connection = await DaemonConnection.open(daemon.transport, options);
  const { received } = daemon;
  t.same([await received.number(), await received.number()], [CLIENT_MAGIC, 0x126]);
  if (minor >= 38) t.same(await received.texts(), []);
  t.same([await received.number(), await received.number()], [0, 0]);
  return { daemon, connection };
}

for (const [minor, agreed, nixVersion] of [
  [21, 0x115, undefined],
  [32, 0x120, undefined],
  [34, 0x122, '2.99.1'],
  [37, 0x125, '2.99.1'],
  [38, 0x126, '2.99.1'],
  [39, 0x126, '2.99.1'],
] as const) {
  t.test(`shakes hands with 1.${minor}, then asks`, async (t) => {
    const { daemon, connection } = await connected(minor);
    t.equal(connection.version, agreed);
    t.equal(connection.nixVersion, nixVersion);
    daemon.send(MESSAGE.last, 1);
    t.equal(await isValidPath(connection, DEFAULT_STORE_DIR, path), true);
    t.equal(await daemon.received.number(), 1);
    t.equal(await daemon.received.text(), full);
  });
}

t.test('features a newer daemon offers are read and left', async (t) => {
  const daemon = new FakeDaemon();
  daemon.send(SERVER_MAGIC, 0x126, ['realisation-with-path-not-hash'], '2.35.2', 2, MESSAGE.last);
  const connection = await DaemonConnection.open(daemon.transport);
  t.equal(connection.nixVersion, '2.35.2');
});

t.test('the handshake refuses what is no Nix daemon, or too old, or silent', async (t) => {
  const http = new FakeDaemon();
  http.sendBytes(Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n'));
  await t.rejects(DaemonConnection.open(http.transport), { code: 'daemon_protocol' });
  t.ok(http.closed);

  for (const version of [0x114, 0x226]) {
    const old = new FakeDaemon();
    old.send(SERVER_MAGIC, version);
    await t.rejects(DaemonConnection.open(old.transport), { code: 'daemon_version' });
    t.ok(old.closed);
  }

  const silent = new FakeDaemon();
  const opening = DaemonConnection.open(silent.transport, { handshakeTimeout: 20 });
  await t.rejects(opening, { code: 'daemon_timeout' });
  t.ok(silent.closed);
});

t.test('logs and progress before an answer are passed over', async (t) => {
  const { daemon, connection } = await connected(38);
  daemon.send(MESSAGE.next, 'a log line');
  // Activity numbers hold a process id in their upper half and exceed what a double can tell apart.
  daemon.send(MESSAGE.startActivity);
  daemon.sendBytes(Buffer.alloc(8, 0xff));
  daemon.send(3, 100, 'copying', 2, 0, 7, 1, 'text', 0);
  daemon.send(MESSAGE.result);
  daemon.sendBytes(Buffer.alloc(8, 0xff));
  daemon.send(105, 1, 0, 5);
  daemon.send(MESSAGE.stopActivity);
  daemon.sendBytes(Buffer.alloc(8, 0xff));
  daemon.send(MESSAGE.last, 0);
  t.equal(await isValidPath(connection, DEFAULT_STORE_DIR, path), false);
});

t.test('a path is described', async (t) => {
  const { daemon, connection } = await connected(35);
  const hex = createHash('sha256').update('x').digest();
  const signature = `key-1:${Buffer.alloc(64).toString('base64')}`;
  const references = [`/nix/store/${other}`, full];
  daemon.send(MESSAGE.last, 1, '', hex.toString('hex'), references, 1700000000, 120, 1);
  daemon.send([signature, 'malformed'], 'text:sha256:abc');
  t.same(await queryPathInfo(connection, DEFAULT_STORE_DIR, path), {
    storeDir: '/nix/store',
    path,
    narHash: sha256FromBytes(hex),
    narSize: 120,
    references: [path, other],
    deriver: undefined,
    signatures: [signature],
    ca: 'text:sha256:abc',
    registrationTime: 1700000000,
    ultimate: true,
  });
  daemon.send(MESSAGE.last, 0);
  t.equal(await queryPathInfo(connection, DEFAULT_STORE_DIR, path), undefined);
});

t.test('an answer that holds something malformed leaves the connection in step', async (t) => {
  const { daemon, connection } = await connected(35);
  daemon.send(MESSAGE.last, 1, '', 'ff', ['/elsewhere/x'], 1, 120, 1, [], '');
  await t.rejects(queryPathInfo(connection, DEFAULT_STORE_DIR, path), { code: 'store_corrupt' });
  daemon.send(MESSAGE.last, full);
  t.equal(
    await queryPathFromHashPart(connection, DEFAULT_STORE_DIR, parseStorePathHash('a'.repeat(32))),
    path,
  );
  daemon.send(MESSAGE.last, '');
  t.equal(
    await queryPathFromHashPart(connection, DEFAULT_STORE_DIR, parseStorePathHash('b'.repeat(32))),
    undefined,
  );
});

t.test(
  "the daemon's errors, before and since 1.26, without colours; the connection stays usable",
  async (t) => {
    const message = '\x1b[31;1merror:\x1b[0m path \x1b[35;1mx\x1b[0m\n       is bad';
    for (const minor of [21, 26, 38]) {
      const { daemon, connection } = await connected(minor);
      if (minor < 26) daemon.send(MESSAGE.error, message, 1);
      else daemon.send(MESSAGE.error, 'Error', 0, 'Error', message, 0, 2, 0, 'hint one', 0, 'hint two');
      await t.rejects(addTempRoot(connection, DEFAULT_STORE_DIR, path), {
        code: 'daemon_error',
        message: 'the Nix daemon says: path x is bad',
      });
      t.notOk(connection.broken);
      daemon.send(MESSAGE.last, 1);
      await addTempRoot(connection, DEFAULT_STORE_DIR, path);
    }
  },
);

t.test('requests go out before the answers come, which are told apart by their order', async (t) => {
  const { daemon, connection } = await connected(38);
  const answers = [path, other, path].map((one) => isValidPath(connection, DEFAULT_STORE_DIR, one));
  for (const one of [path, other, path]) {
    t.equal(await daemon.received.number(), 1);
    t.equal(await daemon.received.text(), `/nix/store/${one}`);
  }
  daemon.send(MESSAGE.last, 1, MESSAGE.last, 0, MESSAGE.last, 1);
  t.same(await Promise.all(answers), [true, false, true]);
});

t.test('after an unknown message, an end or a silence, nothing is asked any more', async (t) => {
  const unknown = await connected(38);
  unknown.daemon.send(0x12345678);
  const end = await connected(38);
  end.daemon.end();
  const silence = await connected(38, { timeout: 20 });
  for (const [{ daemon, connection }, code] of [
    [unknown, 'daemon_protocol'],
    [end, 'daemon_closed'],
    [silence, 'daemon_timeout'],
  ] as const) {
    const both = [path, other].map((one) => isValidPath(connection, DEFAULT_STORE_DIR, one));
    for (const answer of await Promise.allSettled(both)) {
      t.match(answer, { status: 'rejected', reason: { code } });
    }
    t.ok(connection.broken);
    t.ok(daemon.closed);
    await t.rejects(isValidPath(connection, DEFAULT_STORE_DIR, path), { code });
  }
});

t.test('a store whose idle connection went away connects anew, once', async (t) => {
  const first = await connected(38);
  first.daemon.send(MESSAGE.last, 1);
  const second = await connected(38);
  const third = await connected(38);
  const connections = [first.connection, second.connection, third.connection];
  const store = new DaemonStore(DEFAULT_STORE_DIR, async () => connections.shift()!);
  t.equal(await store.isValidPath(path), true);
  first.daemon.end();
  second.daemon.send(MESSAGE.last, 0);
  t.equal(await store.isValidPath(path), false);
  second.daemon.end();
  third.daemon.end();
  await t.rejects(store.isValidPath(path), { code: 'daemon_closed' });
  t.equal(connections.length, 0);
});

t.test('a NAR that differs, breaks off or turns into an error never looks whole', async (t) => {
  const nar = Buffer.alloc(300_000, 'nar ');
  const info = {
    storeDir: DEFAULT_STORE_DIR,
    path,
    narHash: sha256FromBytes(createHash('sha256').update(nar).digest()),
    narSize: nar.length,
    references: [],
    signatures: [],
    registrationTime: 0,
    ultimate: true,
  };
  const error = [
    MESSAGE.error,
    'Error',
    0,
    'Error',
    'error: reading file: Input/output error',
    0,
    0,
  ] as const;
  const changed = Buffer.from(nar);
  changed[299_999] = 0;
  const cases: [string, (daemon: FakeDaemon) => void, { code: string; message?: string } | undefined][] = [
    ['whole', (daemon) => daemon.sendBytes(nar), undefined],
    ['changed in its last byte', (daemon) => daemon.sendBytes(changed), { code: 'nar_mismatch' }],
    ['cut', (daemon) => daemon.sendBytes(nar.subarray(0, 200_000)), { code: 'daemon_closed' }],
    [
      'an error inside a file',
      (daemon) => {
        daemon.sendBytes(nar.subarray(0, 200_000));
        daemon.send(...error);
      },
      { code: 'nar_failed', message: 'the Nix daemon says: reading file: Input/output error' },
    ],
    [
      'an error longer than what is missing',
      (daemon) => {
        daemon.sendBytes(nar.subarray(0, nar.length - 20));
        daemon.send(...error);
      },
      { code: 'nar_failed', message: 'the Nix daemon says: reading file: Input/output error' },
    ],
  ];
  for (const [name, send, expected] of cases) {
    await t.test(name, async (t) => {
      const { daemon, connection } = await connected(34);
      daemon.send(MESSAGE.last);
      send(daemon);
      daemon.end();
      const chunks: Buffer[] = [];
      const read = async () => {
        for await (const chunk of readNar(connection, info)) chunks.push(Buffer.from(chunk));
      };
      if (expected === undefined) {
        await read();
        t.ok(Buffer.concat(chunks).equals(nar));
      } else {
        await t.rejects(read(), expected);
        t.ok(Buffer.concat(chunks).length < nar.length);
      }
      t.ok(daemon.closed);
    });
  }
});
