import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  sign as signBytes,
  verify as verifyBytes,
} from 'node:crypto';
import type { Brand } from './brand.ts';
import { FormatError } from './errors.ts';

/** One `Sig:` value, `<key name>:<base64 of 64 bytes>`. */
export type Signature = Brand<string, 'Signature'>;

/** An Ed25519 public key as `trusted-public-keys` lists it. */
export interface PublicKey {
  readonly name: string;
  /** `<name>:<base64 of 32 bytes>` */
  readonly text: string;
  readonly key: KeyObject;
}

/** An Ed25519 secret key as `secret-key-files` holds it. */
export interface SecretKey {
  readonly name: string;
  readonly key: KeyObject;
  readonly publicKey: PublicKey;
  /** `<name>:<base64 of seed ‖ public key>`; a secret. */
  readonly exportText: () => string;
}

// DER wrappers around raw Ed25519 keys (RFC 8410).
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex');

export function generateSecretKey(name: string): SecretKey {
  checkName(name);
  const { privateKey } = generateKeyPairSync('ed25519');
  const der = privateKey.export({ format: 'der', type: 'pkcs8' });
  return secretKeyFromSeed(name, der.subarray(PKCS8_PREFIX.length));
}

/** @throws FormatError without repeating the secret. */
export function parseSecretKey(text: string): SecretKey {
  const { name, bytes } = splitKey(text.trim(), 64, 'secret key');
  const key = secretKeyFromSeed(name, bytes.subarray(0, 32));
  if (!rawPublic(key.publicKey.key).equals(bytes.subarray(32))) {
    throw new FormatError('bad_key', `the two halves of the secret key '${name}' do not belong together`);
  }
  return key;
}

/** @throws FormatError */
export function parsePublicKey(text: string): PublicKey {
  const { name, bytes } = splitKey(text.trim(), 32, 'public key');
  return publicKeyFromRaw(name, bytes);
}

/** @throws FormatError; Nix 2.34 and newer reject a whole narinfo for one malformed signature. */
export function parseSignature(text: string): Signature {
  splitKey(text, 64, 'signature');
  return text as Signature;
}

export function signatureKeyName(signature: Signature): string {
  return signature.slice(0, signature.indexOf(':'));
}

export function sign(key: SecretKey, fingerprint: string): Signature {
  const bytes = signBytes(null, Buffer.from(fingerprint), key.key);
  return `${key.name}:${bytes.toString('base64')}` as Signature;
}

/** Whether any of `signatures` was made over `fingerprint` by a key in `trusted`, matched by name as Nix does. */
export function verifyAny(
  trusted: readonly PublicKey[],
  fingerprint: string,
  signatures: readonly Signature[],
): boolean {
  const data = Buffer.from(fingerprint);
  return signatures.some((signature) => {
    const name = signatureKeyName(signature);
    const key = trusted.find((candidate) => candidate.name === name);
    return (
      key !== undefined &&
      verifyBytes(null, data, key.key, Buffer.from(signature.slice(name.length + 1), 'base64'))
    );
  });
}

function secretKeyFromSeed(name: string, seed: Buffer): SecretKey {
  const key = createPrivateKey({ key: Buffer.concat([PKCS8_PREFIX, seed]), format: 'der', type: 'pkcs8' });
  const raw = rawPublic(createPublicKey(key));
  return {
    name,
    key,
    publicKey: publicKeyFromRaw(name, raw),
    exportText: () => `${name}:${Buffer.concat([seed, raw]).toString('base64')}`,
  };
}

function publicKeyFromRaw(name: string, raw: Buffer): PublicKey {
  const key = createPublicKey({ key: Buffer.concat([SPKI_PREFIX, raw]), format: 'der', type: 'spki' });
  return { name, key, text: `${name}:${raw.toString('base64')}` };
}

function rawPublic(key: KeyObject): Buffer {
  return key.export({ format: 'der', type: 'spki' }).subarray(SPKI_PREFIX.length);
}

function splitKey(text: string, size: number, what: string): { name: string; bytes: Buffer } {
  const colon = text.indexOf(':');
  const base64 = text.slice(colon + 1);
  const bytes = Buffer.from(base64, 'base64');
  if (colon <= 0 || bytes.length !== size || bytes.toString('base64') !== base64) {
    throw new FormatError('bad_key', `not a ${what}: '<name>:<base64 of ${size} bytes>' is expected`);
  }
  const name = text.slice(0, colon);
  checkName(name);
  return { name, bytes };
}

function checkName(name: string): void {
  if (!/^[^\s:]{1,255}$/.test(name)) throw new FormatError('bad_key', `'${name}' is not a key name`);
}
