// Makes one workload in a private store and prints its root store paths.
import { parseArgs } from 'node:util';
import { type Closure, openPrivateNix, type PrivateNix } from '../support/nix.ts';
import { debianClosure } from './debian.ts';
import { largeNar, tinyPaths } from './synthetic.ts';

const USAGE = `node bench/workloads/make.ts debian|tiny|large --store-root DIR
  debian: --package NAME[=VERSION] (again for more), --release NAME, --cache DIR
  tiny:   --count N, --seed TEXT
  large:  --bytes N, --seed TEXT
`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    'store-root': { type: 'string' },
    package: { type: 'string', multiple: true },
    release: { type: 'string' },
    cache: { type: 'string' },
    count: { type: 'string' },
    bytes: { type: 'string' },
    seed: { type: 'string' },
  },
});

const makers: Record<string, (nix: PrivateNix) => Promise<Closure>> = {
  debian: (nix) =>
    debianClosure(nix, { roots: values.package, release: values.release, cache: values.cache }),
  tiny: (nix) => tinyPaths(nix, wholeNumber(values.count), values.seed),
  large: (nix) => largeNar(nix, wholeNumber(values.bytes), values.seed),
};

const make = Object.hasOwn(makers, positionals[0] ?? '') ? makers[positionals[0]!] : undefined;
if (make === undefined || positionals.length !== 1 || values['store-root'] === undefined) {
  process.stderr.write(USAGE);
  process.exit(2);
}
const nix = await openPrivateNix(values['store-root']);
const started = performance.now();
const { roots, paths, narBytes } = await make(nix);
const seconds = ((performance.now() - started) / 1000).toFixed(1);
process.stderr.write(`${paths.length} paths, ${(narBytes / 1e6).toFixed(1)} MB as NARs, ${seconds} s\n`);
process.stdout.write(`${roots.join('\n')}\n`);

function wholeNumber(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number(text);
}
