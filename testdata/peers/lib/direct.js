// The measure of a plain client: the same story, told without a gateway.

import assert from 'node:assert/strict';
import { startGateway } from './gateway.js';

/** What the two ends of a story have seen, each in its order. */
export class Log {
  client = [];
  server = [];
}

/**
 * Plays a story twice, on a direct connection and through a gateway; both ends must have
 * seen the same.
 *
 * @param {import('node:test').TestContext} t
 * @param {string} upstream HOST:PORT of the server
 * @param {(addr: string, log: Log) => Promise<void>} story its client connects to addr
 * @param {string[]} flags of the gateway, besides --upstream
 */
export async function sameAsDirect(t, upstream, story, flags = []) {
  const direct = new Log();
  await story(upstream, direct);
  assert.ok(direct.client.length > 0 && direct.server.length > 0, 'the story has something to tell');
  const gateway = await startGateway(t, ['--upstream', `http://${upstream}`, ...flags]);
  const through = new Log();
  await story(gateway.addr, through);
  wantSame('client', through.client, direct.client);
  wantSame('server', through.server, direct.server);
}

/** Fails with the first difference alone. @param {string} side @param {any[]} got @param {any[]} want */
function wantSame(side, got, want) {
  for (const [i, entry] of want.entries()) assert.deepEqual(got[i], entry, `what the ${side} saw, number ${i + 1} of ${want.length}`);
  assert.equal(got.length, want.length, `the ${side} saw more`);
}
