import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { zstdCompressSync } from 'node:zlib';
import { encodeBase32 } from '../../nix/base32.ts';
import { type Compression, EXTENSION } from '../../nix/compression/names.ts';
import { sha256FromBytes } from '../../nix/hash.ts';
import { generateSecretKey, type SecretKey, sign } from '../../nix/keys.ts';
import { fingerprint, type NarInfo, renderNarInfo } from '../../nix/narinfo.ts';
import { DEFAULT_STORE_DIR, parseStorePath } from '../../nix/store-path.ts';

/** A path in a cache that was made without Nix. */
export interface SyntheticPath {
  readonly hash: string;
  /** As the cache itself has it. */
  readonly info: NarInfo;
  /** The bytes behind its URL. */
  readonly file: Buffer;
  /** Where the agent serves its NAR, without the leading slash. */
  readonly agentUrl: string;
}

/** The directory of a binary cache in `dir`, with a key of its own. */
export class SyntheticCache {
  readonly dir: string;
  readonly key: SecretKey;

  constructor(dir: string, key: SecretKey = generateSecretKey('synthetic-1')) {
    this.dir = dir;
    this.key = key;
    mkdirSync(join(dir, 'nar'), { recursive: true });
    writeFileSync(join(dir, 'nix-cache-info'), `StoreDir: ${DEFAULT_STORE_DIR}\nPriority: 40\n`);
  }

  get publicKey(): string {
    return this.key.publicKey.text;
  }

  /** A path with one file of `size` random bytes. */
  add(
    size: number,
    options: { compression?: Compression; hash?: string; contents?: Buffer; key?: SecretKey } = {},
  ): SyntheticPath {
    const {
      compression = 'none',
      hash = encodeBase32(randomBytes(20)),
      contents = randomBytes(size),
    } = options;
    const nar = narOfFile(contents);
    const file = compression === 'zstd' ? zstdCompressSync(nar) : nar;
    const narHash = sha256FromBytes(createHash('sha256').update(nar).digest());
    const fileHash = sha256FromBytes(createHash('sha256').update(file).digest());
    const unsigned = {
      storeDir: DEFAULT_STORE_DIR,
      path: parseStorePath(`${hash}-synthetic`),
      narHash,
      narSize: nar.length,
      references: [],
      signatures: [],
      compression,
      url: `nar/${fileHash}.nar${EXTENSION[compression]}`,
      fileHash,
      fileSize: file.length,
    };
    const info = { ...unsigned, signatures: [sign(options.key ?? this.key, fingerprint(unsigned))] };
    writeFileSync(join(this.dir, info.url), file);
    writeFileSync(join(this.dir, `${hash}.narinfo`), renderNarInfo(info));
    return { hash, info, file, agentUrl: `nar/${hash}-${narHash}.nar${EXTENSION[compression]}` };
  }
}

/** The NAR of one regular file. */
export function narOfFile(contents: Buffer): Buffer {
  const text = (value: string) => narString(Buffer.from(value));
  return Buffer.concat([
    ...['nix-archive-1', '(', 'type', 'regular', 'contents'].map(text),
    narString(contents),
    text(')'),
  ]);
}

function narString(bytes: Buffer): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(bytes.length));
  return Buffer.concat([length, bytes, Buffer.alloc(-bytes.length & 7)]);
}
