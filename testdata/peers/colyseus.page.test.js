import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { openColyseus } from './lib/colyseus.js';
import { tenCuts, wantUntouched } from './lib/cuts.js';
import { Flow } from './lib/flow.js';
import { startGateway } from './lib/gateway.js';
import { Page } from './lib/page.js';
import { recipe } from './lib/recipes.js';
import { Relay } from './lib/relay.js';

// The recipe for Colyseus: colyseus.js in a page that has called install(). The library
// keeps the WebSocket that it finds when it is loaded, so all tests share one page.

const RECIPE = recipe('Colyseus');
const LONGER = 'client.reconnect(room.reconnectionToken)';

/** Opens a gateway and a network in front of the game, and leads the page there. */
async function playground(t, page, game, flags = []) {
  const gateway = await startGateway(t, [...RECIPE.flags({ 'localhost:2567': game.addr }), ...flags]);
  const relay = await Relay.open(t, gateway.addr);
  page.open(`http://${relay.addr}`);
  return { page, tap: page.tap, game, gateway, relay };
}

/** What the player's library and the room hear of the connection, from here on. */
function watch({ game }, room) {
  const unwanted = [];
  game.note = (entry) => unwanted.push(entry);
  room.onLeave((code) => unwanted.push(`left with ${code}`));
  room.onError((code) => unwanted.push(`error ${code}`));
  return unwanted;
}

/** Numbered messages both ways. */
function flows({ game }, room) {
  const up = new Flow('up', (n, filler) => room.send('up', { n, filler }));
  const down = new Flow('down', (n, filler) => game.player.send('down', { n, filler }));
  game.onUp = (_player, { n, filler }) => up.heard(n, filler);
  room.onMessage('down', ({ n, filler }) => down.heard(n, filler));
  return [up, down];
}

test('colyseus.js in a page', { timeout: 120_000 }, async (t) => {
  const page = new Page(t);
  const game = await openColyseus(t);
  const world = await playground(t, page, game);
  const { room } = await page.run(RECIPE.code('html'), { 'game.js': RECIPE.code('game.js') });
  page.onLeave(() => room.leave());
  const unwanted = watch(world, room);

  await t.test('ten cuts go unnoticed', async () => {
    const [up, down] = flows(world, room);
    await tenCuts(world, [up, down]);
    while (room.state.ups !== up.sent) await new Promise((done) => room.onStateChange.once(done));
    assert.equal(room.state.last, String(up.sent));
    assert.deepEqual(unwanted, []);
    assert.equal(game.server.handshakes, 1);
  });

  await t.test("the server's pings are answered while the player is away", async () => {
    const [ws] = game.transport.wss.clients;
    world.relay.goDown();
    await page.tap.until(() => !page.tap.attached);
    for (let beat = 0; beat < 5; beat++) {
      ws.ping();
      await once(ws, 'pong');
    }
    world.relay.comeUp();
    await page.tap.until(() => page.tap.attached);
    await wantUntouched(world);
    assert.deepEqual(unwanted, []);
  });

  await t.test("once the grace period is over, Colyseus's own reconnection takes its turn", (t) => graceOver(t, page, game));
});

/** Sends some bytes, and waits for their echo. */
function echoed(room) {
  const answer = new Promise((done) => room.onMessage('bytes', done));
  room.sendBytes('bytes', Uint8Array.of(1, 2, 3));
  return answer;
}

/** @param {import('node:test').TestContext} t */
async function graceOver(t, page, game) {
  assert.ok(RECIPE.text.includes(LONGER));
  const { relay } = await playground(t, page, game, ['--grace', '300ms']);
  const { client, room } = await page.module(RECIPE.code('game.js'));
  await echoed(room); // by then the room knows that its player has joined
  const left = new Promise((done) => room.onLeave(done));
  const heard = [];
  const lost = new Promise((done) => (game.note = (entry) => heard.push(entry) && done(undefined)));
  relay.goDown();
  await lost;
  relay.comeUp();
  assert.equal(await left, 4404);
  const again = await new Function('client', 'room', `return ${LONGER}`)(client, room);
  assert.equal(again.sessionId, room.sessionId);
  assert.deepEqual(heard, [{ leave: false }, 'reconnected']);
  await again.leave();
}
