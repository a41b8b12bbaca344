import { createCipheriv, createHash } from 'node:crypto';

const BLOCK = 64 << 10;

/** An endless stream of bytes that depends on nothing but its seed: the keystream of AES in counter mode. */
export class Noise {
  readonly #cipher;

  constructor(seed: string) {
    const key = createHash('sha256').update(seed).digest();
    this.#cipher = createCipheriv('aes-256-ctr', key, Buffer.alloc(16));
  }

  /** `length` bytes no compressor makes smaller. */
  random(length: number): Buffer {
    return this.#cipher.update(Buffer.alloc(length));
  }

  /** `length` bytes of words, which compress about as well as source code does. */
  text(length: number): Buffer {
    let text = '';
    while (text.length < length) {
      for (const byte of this.random(Math.ceil((length - text.length) / 8))) text += WORDS[byte];
    }
    return Buffer.from(text.slice(0, length), 'latin1');
  }

  /** `bytes` bytes in blocks of 64 KiB, by turns random and text. */
  *mixed(bytes: number): Generator<Buffer> {
    for (let at = 0, turn = 0; at < bytes; at += BLOCK, turn++) {
      const length = Math.min(BLOCK, bytes - at);
      yield turn % 2 === 0 ? this.random(length) : this.text(length);
    }
  }
}

const WORDS = makeWords();

/** 256 words of 2 to 9 letters, each with its space or line end. */
function makeWords(): string[] {
  const noise = new Noise('words');
  return Array.from({ length: 256 }, (_, index) => {
    const [size, ...letters] = noise.random(10);
    const word = letters.slice(0, 2 + (size! % 8)).map((letter) => String.fromCharCode(97 + (letter % 26)));
    return word.join('') + (index % 10 === 0 ? '\n' : ' ');
  });
}
