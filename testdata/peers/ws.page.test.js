import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { wantUntouched } from './lib/cuts.js';
import { detached, outage } from './lib/world.js';
import { play } from './lib/ws.js';

test("the server's own heartbeat goes on while the client is away", { timeout: 180_000 }, async (t) => {
  const world = await play(t);
  assert.equal(world.socket.url, `ws://${world.relay.host}/match/7`);
  await outage(world, async () => {
    await detached(world);
    for (let beat = 0; beat < 5; beat++) { // what the documentation of `ws` has a server do, without its pauses
      world.game.ping();
      await once(world.game, 'pong');
    }
  });
  await Promise.all(world.flows.map((flow) => flow.one()));
  await wantUntouched(world);
});
