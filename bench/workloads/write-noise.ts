// node write-noise.ts BYTES SEED: writes mixed noise to standard output, which must be a file.
import { writeSync } from 'node:fs';
import { Noise } from './noise.ts';

const [bytes, seed] = process.argv.slice(2);
for (const block of new Noise(seed!).mixed(Number(bytes))) {
  for (let at = 0; at < block.length; ) at += writeSync(1, block, at);
}
