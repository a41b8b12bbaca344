import { spawnSync } from 'node:child_process';
import t from 'tap';
import { ROOT, tool } from '../support/house.ts';

t.test('format, lint rules and the direction of imports hold', async (t) => {
  const args = ['check', '--error-on-warnings', '--colors=off', '.'];
  const { status, stdout, stderr } = spawnSync(tool('biome'), args, { cwd: ROOT, encoding: 'utf8' });
  t.equal(status, 0, `${stdout}${stderr}`.trim());
});
