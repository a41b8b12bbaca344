import type { BitReader } from './bzip2-bits.ts';
import { corrupt } from './errors.ts';
import { CHUNK_SIZE } from './limits.ts';

const RUN_B = 1;
const MAX_CODE_LENGTH = 20;
const GROUP_SIZE = 50;
const MAX_SELECTORS = 18_002;

/** An unpacked block before the last step, which can make 50 times as many bytes of it. */
export interface Block {
  /** Bytes in their sorted order, and above the lowest 8 bits of each where its successor is. */
  readonly links: Uint32Array;
  readonly start: number;
  readonly crc: number;
}

/** Canonical prefix code: for each length the largest code of it, and where its symbols begin. */
interface Code {
  readonly shortest: number;
  readonly limit: Int32Array;
  readonly offset: Int32Array;
  readonly symbols: Uint16Array;
}

const CRC_TABLE = new Uint32Array(256);
for (let i = 0; i < 256; i++) {
  let value = i << 24;
  for (let bit = 0; bit < 8; bit++) value = value < 0 ? (value << 1) ^ 0x04c11db7 : value << 1;
  CRC_TABLE[i] = value >>> 0;
}

/**
 * Reads a block behind its magic number.
 *
 * @param scratch as many elements as a block of this stream may hold bytes; the block lives in it.
 * @throws FormatError for a malformed block, OutOfInput for one that is cut.
 */
export function readBlock(bits: BitReader, scratch: Uint32Array): Block {
  const crc = bits.take32();
  // Randomised blocks are a thing of bzip2 0.9.0 and older.
  if (bits.take(1) !== 0) throw invalid('it is randomised');
  const origin = bits.take(24);
  const bytes = readByteSet(bits);
  const groups = bits.take(3);
  if (groups < 2 || groups > 6) throw invalid('its number of codes is wrong');
  const selectors = readSelectors(bits, groups);
  const codes: Code[] = [];
  for (let i = 0; i < groups; i++) codes.push(readCode(bits, bytes.length + 2));
  const counts = new Uint32Array(256);
  const size = readSymbols(bits, codes, selectors, bytes, scratch, counts);
  if (origin >= size) throw invalid('its origin lies outside');
  const links = scratch.subarray(0, size);
  linkUp(links, counts);
  return { links, start: (links[origin] as number) >>> 8, crc };
}

/**
 * Undoes the sorting and the run lengths.
 *
 * @returns the block's checksum
 * @throws FormatError where the checksum is wrong
 */
export function* blockOutput(block: Block): Generator<Buffer, number> {
  const { links } = block;
  let at = block.start;
  let out = Buffer.allocUnsafe(CHUNK_SIZE);
  let used = 0;
  let crc = 0xffffffff;
  let previous = -1;
  let run = 0;
  for (let left = links.length; left > 0; left--) {
    const link = links[at] as number;
    const byte = link & 255;
    at = link >>> 8;
    let copies = 1;
    if (run === 4) {
      // Behind four equal bytes stands how many more of them follow.
      copies = byte;
      run = 0;
    } else {
      run = byte === previous ? run + 1 : 1;
      previous = byte;
    }
    for (; copies > 0; copies--) {
      crc = (crc << 8) ^ (CRC_TABLE[(crc >>> 24) ^ previous] as number);
      out[used++] = previous;
      if (used === out.length) {
        yield out;
        out = Buffer.allocUnsafe(CHUNK_SIZE);
        used = 0;
      }
    }
    if (run === 0) previous = -1;
  }
  if (used > 0) yield out.subarray(0, used);
  crc = ~crc >>> 0;
  if (crc !== block.crc) throw invalid('its checksum is wrong');
  return crc;
}

/** The bytes that occur at all, ascending. */
function readByteSet(bits: BitReader): Uint8Array {
  const bytes: number[] = [];
  const rows = bits.take(16);
  for (let row = 0; row < 16; row++) {
    if ((rows & (0x8000 >> row)) === 0) continue;
    const columns = bits.take(16);
    for (let column = 0; column < 16; column++) {
      if ((columns & (0x8000 >> column)) !== 0) bytes.push(row * 16 + column);
    }
  }
  if (bytes.length === 0) throw invalid('it uses no bytes');
  return Uint8Array.from(bytes);
}

/** Which code each group of 50 symbols is written in. */
function readSelectors(bits: BitReader, groups: number): Uint8Array {
  const count = bits.take(15);
  if (count === 0) throw invalid('it has no selectors');
  const order = Uint8Array.from({ length: groups }, (_, i) => i);
  const selectors = new Uint8Array(Math.min(count, MAX_SELECTORS));
  for (let i = 0; i < count; i++) {
    let rank = 0;
    while (bits.take(1) === 1) if (++rank >= groups) throw invalid('a selector is wrong');
    const selector = order[rank] as number;
    order.copyWithin(1, 0, rank);
    order[0] = selector;
    // Some writers add more than a block can use; they mean nothing.
    if (i < MAX_SELECTORS) selectors[i] = selector;
  }
  return selectors;
}

function readCode(bits: BitReader, symbolCount: number): Code {
  const lengths = new Uint8Array(symbolCount);
  let length = bits.take(5);
  for (let i = 0; i < symbolCount; i++) {
    for (;;) {
      if (length < 1 || length > MAX_CODE_LENGTH) throw invalid('a code length is wrong');
      if (bits.take(1) === 0) break;
      length += bits.take(1) === 0 ? 1 : -1;
    }
    lengths[i] = length;
  }
  const limit = new Int32Array(MAX_CODE_LENGTH + 1).fill(-1);
  const offset = new Int32Array(MAX_CODE_LENGTH + 1);
  const symbols = new Uint16Array(symbolCount);
  let code = 0;
  let filled = 0;
  for (let size = 1; size <= MAX_CODE_LENGTH; size++) {
    code <<= 1;
    offset[size] = filled - code;
    for (let symbol = 0; symbol < symbolCount; symbol++) {
      if (lengths[symbol] !== size) continue;
      symbols[filled++] = symbol;
      code++;
    }
    limit[size] = code - 1;
  }
  return { shortest: lengths.reduce((a, b) => Math.min(a, b)), limit, offset, symbols };
}

/** Undoes the prefix codes, the zero runs and move-to-front; returns how many bytes are in `links`. */
function readSymbols(
  bits: BitReader,
  codes: readonly Code[],
  selectors: Uint8Array,
  bytes: Uint8Array,
  links: Uint32Array,
  counts: Uint32Array,
): number {
  const order = Uint8Array.from(bytes);
  const endOfBlock = bytes.length + 1;
  let size = 0;
  let runLength = 0;
  let runUnit = 1;
  for (let group = 0; ; group++) {
    const code = codes[selectors[group] ?? -1];
    if (code === undefined) throw invalid('it has more symbols than selectors');
    for (let i = 0; i < GROUP_SIZE; i++) {
      const symbol = readSymbol(bits, code);
      if (symbol <= RUN_B) {
        runLength += runUnit << symbol;
        runUnit <<= 1;
        if (runLength > links.length) throw invalid('it is longer than its stream allows');
        continue;
      }
      if (runLength > 0) {
        if (size + runLength > links.length) throw invalid('it is longer than its stream allows');
        const byte = order[0] as number;
        links.fill(byte, size, size + runLength);
        counts[byte] = (counts[byte] as number) + runLength;
        size += runLength;
        runLength = 0;
        runUnit = 1;
      }
      if (symbol === endOfBlock) return size;
      if (size === links.length) throw invalid('it is longer than its stream allows');
      const rank = symbol - 1;
      const byte = order[rank] as number;
      for (let k = rank; k > 0; k--) order[k] = order[k - 1] as number;
      order[0] = byte;
      counts[byte] = (counts[byte] as number) + 1;
      links[size++] = byte;
    }
  }
}

function readSymbol(bits: BitReader, code: Code): number {
  const ahead = bits.peek(MAX_CODE_LENGTH);
  for (let length = code.shortest; length <= MAX_CODE_LENGTH; length++) {
    const value = ahead >> (MAX_CODE_LENGTH - length);
    if (value > (code.limit[length] as number)) continue;
    bits.drop(length);
    const symbol = code.symbols[value + (code.offset[length] as number)];
    if (symbol === undefined) break;
    return symbol;
  }
  throw invalid('a code is wrong');
}

/** Gives every byte the place of the one that follows it in the text. */
function linkUp(links: Uint32Array, counts: Uint32Array): void {
  const next = new Uint32Array(256);
  let sum = 0;
  for (let byte = 0; byte < 256; byte++) {
    next[byte] = sum;
    sum += counts[byte] as number;
  }
  for (let i = 0; i < links.length; i++) {
    const byte = (links[i] as number) & 255;
    const place = next[byte] as number;
    next[byte] = place + 1;
    links[place] = ((links[place] as number) | (i << 8)) >>> 0;
  }
}

function invalid(why: string) {
  return corrupt('bzip2', new Error(`a block: ${why}`));
}
