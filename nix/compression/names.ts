/** The compressions a narinfo may name and every Nix can read that we serve it to. */
export const COMPRESSIONS = ['none', 'xz', 'zstd', 'br', 'bzip2'] as const;

export type Compression = (typeof COMPRESSIONS)[number];

/** How the file behind a NAR URL ends: `.nar` and this. */
export const EXTENSION: Readonly<Record<Compression, string>> = {
  none: '',
  xz: '.xz',
  zstd: '.zst',
  br: '.br',
  bzip2: '.bz2',
};
