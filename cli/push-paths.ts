import { BcacheError } from '../nix/errors.ts';
import type { LocalStore, TempRoots } from '../nix/store/local-store.ts';
import { resolveStorePath } from '../nix/store/resolve.ts';
import { fullPath, type StorePath } from '../nix/store-path.ts';

/** Longer words are no paths. */
const MAX_WORD = 4096;
const MAX_WORDS = 200_000;

/** Reads words between white space. @throws BcacheError `bad_input` past any bound */
export async function readWords(input: AsyncIterable<Buffer | string>): Promise<string[]> {
  const words: string[] = [];
  let rest = '';
  const decoder = new TextDecoder();
  for await (const chunk of input) {
    const text = rest + (typeof chunk === 'string' ? chunk : decoder.decode(chunk, { stream: true }));
    const found = text.split(/\s+/);
    rest = found.pop() as string;
    for (const word of found) if (word !== '') words.push(word);
    if (rest.length > MAX_WORD || words.length > MAX_WORDS) {
      throw new BcacheError('bad_input', 'standard input is not a list of store paths', {
        hint: `Give at most ${MAX_WORDS} paths, with spaces or newlines between them.`,
      });
    }
  }
  return rest === '' ? words : [...words, rest];
}

/**
 * The store paths that `names` lead to, each once.
 *
 * @throws BcacheError that names all of those that lead to none
 */
export function resolvePaths(names: readonly string[], store: LocalStore): StorePath[] {
  const paths = new Set<StorePath>();
  const problems: BcacheError[] = [];
  for (const name of names) {
    try {
      paths.add(resolveStorePath(name, store.storeDir));
    } catch (error) {
      if (!(error instanceof BcacheError)) throw error;
      problems.push(error);
    }
  }
  throwAll(problems);
  return [...paths];
}

/**
 * Checks that paths are valid, once they are protected from garbage collection: the other way round they could
 * go in between.
 *
 * @param roots undefined where nothing can be protected
 * @throws BcacheError that names all of those that are not valid
 */
export async function holdPaths(
  paths: readonly StorePath[],
  store: LocalStore,
  roots: TempRoots | undefined,
): Promise<void> {
  for (const path of paths) await roots?.add(path);
  const problems: BcacheError[] = [];
  for (const path of paths) {
    if ((await store.queryPathInfo(path)) !== undefined) continue;
    problems.push(
      new BcacheError('invalid_path', `'${fullPath(store.storeDir, path)}' is not in the local Nix store`, {
        hint: 'Build it first, or check the path: it may have been garbage-collected.',
      }),
    );
  }
  throwAll(problems);
}

/** One error out of many, with the hint of the first. */
function throwAll(problems: readonly BcacheError[]): void {
  const [first] = problems;
  if (first === undefined) return;
  if (problems.length === 1) throw first;
  const messages = problems.map(({ message }) => message).join('; ');
  throw new BcacheError(
    first.code,
    `${problems.length} paths cannot be pushed: ${messages}`,
    first.hint === undefined ? {} : { hint: first.hint },
  );
}
