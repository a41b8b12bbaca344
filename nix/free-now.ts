/**
 * Frees the memory of a buffer that nothing else uses, which is empty from then on. Left to the garbage collector,
 * which sees little reason to run, the buffers of some GB would pile up to a hundred MB.
 */
export function freeNow(buffer: ArrayBufferLike): void {
  if (buffer instanceof ArrayBuffer && !buffer.detached) buffer.transfer(0);
}
