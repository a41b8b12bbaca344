import { createReadStream, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { encodeBase32 } from '../../nix/base32.ts';
import {
  checkContentAddress,
  contentAddressedPath,
  type HashAlgorithm,
  parseContentAddress,
} from '../../nix/content-address.ts';
import { formatSha256, parseSha256 } from '../../nix/hash.ts';
import { type NarDigest, verifyNar } from '../../nix/nar/verify.ts';
import { type PathInfo, sortReferences } from '../../nix/narinfo.ts';
import { hashPart, parseFullPath, parseStoreDir, parseStorePath } from '../../nix/store-path.ts';
import { createNixSandbox, NO_NIX, nixAvailable } from '../support/nix.ts';

const SIZES: readonly [HashAlgorithm, number][] = [
  ['md5', 16],
  ['sha1', 20],
  ['sha256', 32],
  ['sha512', 64],
];

t.test('every form is read', async () => {
  const method = fc.constantFrom(
    ['fixed:', 'flat'],
    ['fixed:r:', 'nar'],
    ['fixed:git:', 'git'],
    ['text:', 'text'],
  );
  fc.assert(
    fc.property(
      method,
      fc.constantFrom(...SIZES),
      fc.infiniteStream(fc.nat(255)),
      ([prefix, name], kind, bytes) => {
        const [algorithm, size] = name === 'text' ? (['sha256', 32] as const) : kind;
        const digest = Buffer.from([...bytes.take(size)]);
        return [encodeBase32(digest), digest.toString('hex'), digest.toString('base64')].every((text) => {
          const address = parseContentAddress(`${prefix}${algorithm}:${text}`);
          return address.method === name && address.algorithm === algorithm && address.digest.equals(digest);
        });
      },
    ),
    { numRuns: 100 },
  );
});

t.test('malformed ones are refused', async (t) => {
  const digest = encodeBase32(Buffer.alloc(32, 7));
  for (const text of [
    ...['', 'fixed', `sha256:${digest}`, `fixed:sha256:${digest.slice(1)}`, `fixed:sha256:${digest} `],
    ...[`fixed:r:sha1:${digest}`, `fixed:R:sha256:${digest}`, `fixed:r:git:sha256:${digest}`],
    ...[`text:sha1:${encodeBase32(Buffer.alloc(20))}`, `text:r:sha256:${digest}`, `fixed:sha3:${digest}`],
    ...[`fixed:sha256:${digest.replace(/.$/, 'e')}`, `FIXED:sha256:${digest}`, `fixed:sha256:`],
  ]) {
    t.throws(() => parseContentAddress(text), { name: 'FormatError' }, text);
  }
});

t.test('verdicts', async (t) => {
  const storeDir = parseStoreDir('/nix/store');
  const digest = Buffer.alloc(32, 7);
  const anyPath = parseStorePath(`${'a'.repeat(32)}-x`);
  const at = (ca: string, references = [] as PathInfo['references']) => {
    const path = contentAddressedPath(parseContentAddress(ca), { storeDir, path: anyPath, references });
    return { storeDir, path, references, ca };
  };
  const flat = at(`fixed:sha256:${encodeBase32(digest)}`);
  t.equal(checkContentAddress(flat, digest), 'proven');
  t.equal(checkContentAddress(flat, Buffer.alloc(32, 8)), 'wrong-content');
  t.equal(checkContentAddress({ ...flat, path: anyPath }, digest), 'wrong-path');
  t.equal(checkContentAddress({ ...flat, storeDir: parseStoreDir('/other/store') }, digest), 'wrong-path');
  const renamed = parseStorePath(`${hashPart(flat.path)}-y`);
  t.equal(checkContentAddress({ ...flat, path: renamed }, digest), 'wrong-path');
  const git = at(`fixed:git:sha1:${encodeBase32(Buffer.alloc(20, 7))}`);
  t.equal(checkContentAddress(git, undefined), 'unknown', 'nobody can tell what a git tree hashes to');

  const nar = at(`fixed:r:sha256:${encodeBase32(digest)}`, [anyPath]);
  t.equal(
    checkContentAddress({ ...nar, references: [] }, digest),
    'wrong-path',
    'references are a part of it',
  );
  t.throws(() => checkContentAddress({ ...flat, references: [anyPath] }, digest), {
    code: 'bad_content_address',
  });
  const text = at(`text:sha256:${encodeBase32(digest)}`);
  t.throws(() => checkContentAddress({ ...text, references: [text.path] }, digest), {
    code: 'bad_content_address',
  });
  t.throws(() => checkContentAddress({ ...flat, ca: undefined }, digest), { code: 'bad_content_address' });
});

t.test('paths that Nix makes', { skip: nixAvailable() ? false : NO_NIX }, async (t) => {
  const nix = createNixSandbox(t);
  const { dir } = nix;
  const nixCa = ['--extra-experimental-features', 'ca-derivations'];

  async function pathInfo(full: string): Promise<PathInfo> {
    const drv = full.endsWith('.drv') ? ['--derivation'] : [];
    const [info] = JSON.parse(await nix.must('nix', ['path-info', '--json', ...drv, full]));
    const { storeDir, path } = parseFullPath(info.path);
    return {
      storeDir,
      path,
      narHash: parseSha256(info.narHash),
      narSize: info.narSize,
      references: sortReferences(info.references.map((reference: string) => parseFullPath(reference).path)),
      signatures: [],
      ca: info.ca,
    };
  }

  async function digestOf(info: PathInfo): Promise<NarDigest> {
    const nar = join(dir, 'one.nar');
    await nix.must('sh', ['-c', `nix-store --dump ${info.storeDir}/${info.path} > ${nar}`]);
    return verifyNar(createReadStream(nar, { highWaterMark: 50 }), 'none', {
      contentAddress: info.ca,
      selfReference: info.references.includes(info.path) ? hashPart(info.path) : undefined,
    });
  }

  async function proves(t: Test, full: string, what: RegExp): Promise<PathInfo> {
    const info = await pathInfo(full);
    t.match(info.ca, what);
    const digest = await digestOf(info);
    t.equal(digest.narHash, info.narHash);
    t.equal(checkContentAddress(info, digest.contentHash), 'proven', `${info.ca}`);
    t.equal(checkContentAddress(info, digest.contentHash?.fill(0)), 'wrong-content');
    return info;
  }

  mkdirSync(join(dir, 'tree', 'sub'), { recursive: true });
  writeFileSync(join(dir, 'tree', 'sub', 'file'), 'in a tree');
  writeFileSync(join(dir, 'file'), 'a file');

  await t.test('sources', async (t) => {
    const info = await proves(t, await nix.must('nix-store', ['--add', 'tree']), /^fixed:r:sha256:/);
    t.equal(info.ca, `fixed:r:${formatSha256(info.narHash)}`);
    await proves(t, await nix.must('nix-store', ['--add', 'file']), /^fixed:r:sha256:/);
  });

  for (const [algorithm] of SIZES) {
    await t.test(`fixed ${algorithm}`, async (t) => {
      const flat = await nix.must('nix-store', ['--add-fixed', algorithm, 'file']);
      await proves(t, flat, new RegExp(`^fixed:${algorithm}:`));
      const tree = await nix.must('nix-store', ['--add-fixed', '--recursive', algorithm, 'tree']);
      await proves(t, tree, new RegExp(`^fixed:r:${algorithm}:`));
    });
  }

  await t.test('derivations and texts, with references', async (t) => {
    const expression = `
      let dep = builtins.toFile "dep" "a dependency"; in derivation {
        name = "self"; system = builtins.currentSystem; builder = "/bin/sh";
        args = [ "-c" "echo $out \${dep} $out > $out" ];
      }`;
    writeFileSync(join(dir, 'self.nix'), expression);
    const drv = await proves(t, await nix.must('nix-instantiate', ['self.nix']), /^text:sha256:/);
    t.equal(drv.references.length, 1);
  });

  await t.test('a path that refers to itself', async (t) => {
    const built = await nix.must('nix-build', ['self.nix', '--no-out-link']);
    const json = await nix.must('nix', ['store', 'make-content-addressed', ...nixCa, '--json', built]);
    const info = await proves(t, JSON.parse(json).rewrites[built], /^fixed:r:sha256:/);
    t.equal(info.references.length, 2);
    t.not(info.ca, `fixed:r:${formatSha256(info.narHash)}`, 'its own name is left out of the hash');
  });

  await t.test('more than a plain file under the address of one', async (t) => {
    const flat = await pathInfo(await nix.must('nix-store', ['--add-fixed', 'sha256', 'file']));
    const tree = await pathInfo(await nix.must('nix-store', ['--add', 'tree']));
    await t.rejects(digestOf({ ...tree, ca: flat.ca }), { code: 'nar_not_flat' });
  });
});
