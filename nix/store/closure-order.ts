import { StoreError } from '../errors.ts';
import type { StorePath } from '../store-path.ts';
import type { LocalPathInfo } from './local-store.ts';

/**
 * What `roots` reach in `infos`, references before their referrers. Depends on nothing but the graph:
 * roots and references are taken in bytewise order.
 *
 * @throws StoreError `invalid_path` where a root or a reference is not among `infos`
 */
export function closureOrder(
  infos: ReadonlyMap<StorePath, LocalPathInfo>,
  roots: readonly StorePath[],
): LocalPathInfo[] {
  const order: LocalPathInfo[] = [];
  const seen = new Set<StorePath>();
  // Chains can be thousands of paths long: the stack is ours, not the engine's.
  const stack: { info: LocalPathInfo; next: number }[] = [];
  const enter = (path: StorePath): void => {
    if (seen.has(path)) return;
    seen.add(path);
    const info = infos.get(path);
    if (info === undefined) throw invalidPath(path);
    stack.push({ info, next: 0 });
  };
  for (const root of [...roots].sort()) {
    enter(root);
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const reference = top.info.references[top.next++];
      if (reference !== undefined) {
        enter(reference);
      } else {
        order.push(top.info);
        stack.pop();
      }
    }
  }
  return order;
}

export function invalidPath(path: StorePath): StoreError {
  return new StoreError('invalid_path', `'${path}' is not valid in the local Nix store`, {
    hint: 'Build it first, or check the path: it may have been garbage-collected.',
  });
}
