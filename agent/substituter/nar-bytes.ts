import type { ByteSource } from '../../api/send-bytes.ts';

/** A NAR's file as one client reads it, kept already or still arriving. To be closed. */
export interface NarBytes extends ByteSource {
  /** Bytes of the file; undefined while it arrives from an upstream that does not say. */
  readonly size: number | undefined;
  /** Waits until byte `start` may be handed out; false when it never will be. */
  ready(start: number): Promise<boolean>;
  /**
   * Fills `into` from `position` on, as far as there are bytes; waits for at least one.
   *
   * @returns how many were read, 0 at the end of the file
   * @throws where the NAR turned out wrong or incomplete
   */
  read(into: Uint8Array, position: number): Promise<number>;
  close(): void;
}
