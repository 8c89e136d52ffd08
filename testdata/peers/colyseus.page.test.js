import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { apart } from './lib/apart.js';
import { RECIPE, echoed, flows, openColyseus, playground, watch } from './lib/colyseus.js';
import { tenCuts, wantUntouched } from './lib/cuts.js';
import { Page } from './lib/page.js';

// The recipe for Colyseus: @colyseus/sdk in a page that has called install(). The library
// keeps the WebSocket that it finds when it is loaded, so all tests share one page.

const LONGER = 'client.reconnect(room.reconnectionToken)';

test('@colyseus/sdk in a page', { timeout: 300_000 }, async (t) => {
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
  assert.deepEqual(heard, [{ drop: 1001 }, 'reconnected']);
  await again.leave();
}

test('the offline event of the window closes the connections of the SDK, and hideOffline hides it', { timeout: 180_000 }, async (t) => {
  const html = RECIPE.code('html');
  const heedless = html.replace(' data-hide-offline', '');
  assert.notEqual(heedless, html);
  const colyseus = new URL('lib/colyseus.js', import.meta.url);
  await apart(t, colyseus, 'goOffline', heedless, ['dropped with 4010', 'left with 1006']);
  await apart(t, colyseus, 'goOffline', html, []);
});
