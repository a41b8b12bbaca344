/** An agent as a process of its own: takes its options as JSON, prints its address, runs until it is killed. */
import { startAgent } from '../../agent/agent.ts';

const { url } = await startAgent(JSON.parse(process.argv[2] ?? ''));
console.log(url);
