// The measure of a plain client: the same story, told without a gateway.

import assert from 'node:assert/strict';
import { startGateway } from '../../../web/e2e/support/gateway.js';

/**
 * Plays a story twice, on a direct connection to the server and through a gateway; both ends
 * must have seen the same. `story(addr, log)` has its client connect to addr, and notes what
 * each end sees, in its order, in log.client and log.server.
 */
export async function sameAsDirect(t, upstream, story, flags = []) {
  const direct = { client: [], server: [] };
  await story(upstream, direct);
  assert.ok(direct.client.length > 0 && direct.server.length > 0, 'the story has something to tell');
  const gateway = await startGateway(t, '--upstream', `http://${upstream}`, ...flags);
  const through = { client: [], server: [] };
  await story(gateway.host, through);
  for (const side of ['client', 'server']) wantSame(side, through[side], direct[side]);
}

/** Fails with the first difference alone. */
function wantSame(side, got, want) {
  for (const [i, entry] of want.entries()) assert.deepEqual(got[i], entry, `what the ${side} saw, number ${i + 1} of ${want.length}`);
  assert.equal(got.length, want.length, `the ${side} saw more`);
}
