import t from 'tap';
import { runTool } from '../support/house.ts';

t.test('format, lint rules and the direction of imports hold', async (t) => {
  const { status, output } = runTool('biome', ['check', '--error-on-warnings', '--colors=off', '.']);
  t.equal(status, 0, output || 'nothing was found');
});
