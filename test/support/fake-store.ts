import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { encodeBase32 } from '../../nix/base32.ts';
import { sha256FromBytes } from '../../nix/hash.ts';
import { writeNar } from '../../nix/nar/write.ts';
import { sortReferences } from '../../nix/narinfo.ts';
import { closureOrder } from '../../nix/store/closure-order.ts';
import type { LocalPathInfo, LocalStore } from '../../nix/store/local-store.ts';
import {
  fullPath,
  parseStoreDir,
  parseStorePath,
  type StoreDir,
  type StorePath,
} from '../../nix/store-path.ts';

interface Teardown {
  teardown(fn: () => unknown): void;
}

/** A store made without Nix: files in a directory, and what a database would know of them. */
export class FakeStore implements LocalStore {
  readonly storeDir: StoreDir;
  readonly infos = new Map<StorePath, LocalPathInfo>();

  constructor(t: Teardown) {
    const dir = mkdtempSync(join(tmpdir(), 'store-'));
    t.teardown(() => rmSync(dir, { recursive: true, force: true }));
    this.storeDir = parseStoreDir(join(dir, 'store'));
    mkdirSync(this.storeDir);
  }

  /** Adds a path that is one executable file. */
  add(name: string, contents: string | Buffer, references: readonly StorePath[] = []): StorePath {
    const digest = createHash('sha256').update(name).digest().subarray(0, 20);
    const path = parseStorePath(`${encodeBase32(digest)}-${name}`);
    const file = fullPath(this.storeDir, path);
    writeFileSync(file, contents);
    chmodSync(file, 0o555);
    const nar = Buffer.concat([...writeNar(file)]);
    this.infos.set(path, {
      storeDir: this.storeDir,
      path,
      narHash: sha256FromBytes(createHash('sha256').update(nar).digest()),
      narSize: nar.length,
      references: sortReferences(references),
      signatures: [],
      registrationTime: 1,
      ultimate: true,
    });
    return path;
  }

  /** Changes one byte of a file behind the store's back. */
  corrupt(path: StorePath): void {
    const file = fullPath(this.storeDir, path);
    const contents = readFileSync(file);
    contents.writeUInt8(contents.readUInt8(0) ^ 1, 0);
    chmodSync(file, 0o755);
    writeFileSync(file, contents);
  }

  async queryPathInfo(path: StorePath): Promise<LocalPathInfo | undefined> {
    return this.infos.get(path);
  }

  async queryClosure(roots: readonly StorePath[]): Promise<LocalPathInfo[]> {
    return closureOrder(this.infos, roots);
  }

  async close(): Promise<void> {}
}
