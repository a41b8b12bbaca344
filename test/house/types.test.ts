import t from 'tap';
import { runTool } from '../support/house.ts';

t.test('the type check finds nothing', async (t) => {
  const { status, output } = runTool('tsc', ['--noEmit']);
  t.equal(status, 0, output || 'nothing was found');
});
