#!/usr/bin/env -S MALLOC_ARENA_MAX=2 node --max-semi-space-size=1
// Both bounds keep a process small while gigabytes pass through its threads; they cost no time that shows.
import { enableCompileCache } from 'node:module';
import { homedir } from 'node:os';
import { join } from 'node:path';

// Compiled code is kept between runs, for worker threads too: it halves the start. Not in the shared /tmp.
const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'bcache', 'compiled');
process.env.NODE_COMPILE_CACHE ??= cache;
enableCompileCache(process.env.NODE_COMPILE_CACHE);

const { main } = await import('./main.ts');
await main(process.argv.slice(2));
