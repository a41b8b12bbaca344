import { spawnSync } from 'node:child_process';
import t from 'tap';
import { ROOT, tool } from '../support/house.ts';

t.test('the type check finds nothing', async (t) => {
  const { status, stdout, stderr } = spawnSync(tool('tsc'), ['--noEmit'], { cwd: ROOT, encoding: 'utf8' });
  t.equal(status, 0, `${stdout}${stderr}`.trim());
});
