export interface DumpWorkerData {
  /** Of zstd, 1 to 19. */
  readonly level: number;
}

/** To a dump worker. Several dumps run side by side in one; `id` tells them apart. */
export type ToDumpWorker =
  | { readonly type: 'dump'; readonly id: number; readonly root: string }
  /** One frame was used up: the worker may send one more. */
  | { readonly type: 'ack'; readonly id: number }
  | { readonly type: 'cancel'; readonly id: number }
  /** Ends the worker, and all its dumps. */
  | { readonly type: 'stop' };

/** From a dump worker: the frames of a NAR in order, then its digest, or an error at any point. */
export type FromDumpWorker =
  | {
      readonly type: 'frame';
      readonly id: number;
      /** One zstd frame. */
      readonly bytes: Uint8Array<ArrayBuffer>;
      /** Bytes of the NAR inside. */
      readonly narBytes: number;
    }
  | { readonly type: 'end'; readonly id: number; readonly narHash: string; readonly narSize: number }
  | {
      readonly type: 'error';
      readonly id: number;
      readonly code: string;
      readonly message: string;
      readonly hint: string | undefined;
    };

/** Frames of one dump that may be on their way or waiting at once. */
export const FRAME_CREDITS = 3;
