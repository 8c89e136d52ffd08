import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { tenCuts, wantUntouched } from './lib/cuts.js';
import { startGateway } from './lib/gateway.js';
import { openServer } from './lib/server.js';
import { PAGE, RECIPE, flows, play } from './lib/ws.js';

for (const compression of ['off', 'on']) {
  test(`ten cuts go unnoticed, compression ${compression}`, { timeout: 180_000 }, async (t) => {
    const world = await play(t, (page) => page.module(RECIPE.code('js')), ['--compression', compression]);
    await tenCuts(world, flows(world));
    assert.deepEqual(world.unwanted, []);
    assert.equal(world.server.handshakes, 1);
    assert.equal(world.socket.url, `ws://${world.relay.addr}/match/7`);
  });
}

test("the server's own heartbeat goes on while the client is away", { timeout: 180_000 }, async (t) => {
  const world = await play(t, (page) => page.module(RECIPE.code('js')));
  world.relay.goDown();
  await world.tap.until(() => !world.tap.attached);
  for (let beat = 0; beat < 5; beat++) { // what the documentation of `ws` has a server do, without its pauses
    world.game.ping();
    await once(world.game, 'pong');
  }
  world.game.send('while you were away');
  world.relay.comeUp();
  const [{ data }] = await once(world.socket, 'message');
  assert.equal(data, 'while you were away');
  await wantUntouched(world);
  assert.deepEqual(world.unwanted, []);
});

test('a page on another host needs --origin', { timeout: 180_000 }, async (t) => {
  const server = await openServer(t);
  new WebSocketServer({ server });
  const gateway = await startGateway(t, ['--upstream', `ws://${server.addr}`]);
  const [, answer] = await once(new WebSocket(`ws://${gateway.addr}/match/7`, { origin: PAGE }), 'unexpected-response');
  assert.equal(answer.statusCode, 403);
  answer.destroy();
  assert.equal(server.handshakes, 0);
});
