/** Output buffers of every codec: few enough turns for speed, small enough for many streams at once. */
export const CHUNK_SIZE = 256 << 10;
