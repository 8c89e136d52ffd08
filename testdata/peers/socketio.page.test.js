import assert from 'node:assert/strict';
import { on, once } from 'node:events';
import { test } from 'node:test';
import { tenCuts, wantUntouched } from './lib/cuts.js';
import { GAME, RECIPE, flows, onWebSocket, play, wantUnnoticed } from './lib/socketio.js';

const KEEPALIVE = ' data-keepalive="engine.io"';
const WEBSOCKET_ONLY = "io({ transports: ['websocket'] })";

for (const [name, game] of Object.entries({ 'default transports': GAME, 'websocket alone': GAME.replace('io()', WEBSOCKET_ONLY) })) {
  test(`ten cuts go unnoticed: ${name}`, { timeout: 180_000 }, async (t) => {
    assert.ok(RECIPE.text.includes(WEBSOCKET_ONLY) && game.includes('io('));
    const world = await play(t, { game });
    await tenCuts(world, flows(world));
    wantUnnoticed(world);
  });
}

test('a ping of the server that falls into a cut is answered after it', { timeout: 180_000 }, async (t) => {
  const recipeFlags = (addresses) => RECIPE.flags(addresses).slice(0, 2); // --upstream alone: the gateway does not answer for the page
  const world = await play(t, { recipeFlags, options: { pingInterval: 50 } });
  const { conn } = world.peer;
  await once(conn, 'heartbeat'); // none is under way
  for await (const [{ type }] of on(conn, 'packetCreate')) if (type === 'ping') break;
  world.relay.goDown(); // before the ping has come through
  await world.tap.until(() => !world.tap.attached);
  world.relay.comeUp();
  await once(conn, 'heartbeat');
  await world.tap.until(() => world.tap.attached);
  await wantUntouched(world);
  wantUnnoticed(world);
});

test('without keepalives a cut longer than pingTimeout makes Socket.IO begin anew by itself', { timeout: 180_000 }, async (t) => {
  assert.ok(RECIPE.code('html').includes(KEEPALIVE));
  const html = RECIPE.code('html').replace(KEEPALIVE, '');
  const recipeFlags = (addresses) => RECIPE.flags(addresses).slice(0, 2); // --upstream alone
  const world = await play(t, { html, recipeFlags, options: { pingInterval: 50, pingTimeout: 100 } });
  world.relay.goDown();
  const [reason] = await once(world.peer, 'disconnect');
  assert.equal(reason, 'ping timeout');
  const again = once(world.io, 'connection');
  world.relay.comeUp();
  await again;
  await onWebSocket(world.socket);
  assert.notEqual(world.socket.id, world.peer.id);
});

test('with keepalives on both sides a player who is gone for much longer than pingTimeout is not missed', { timeout: 180_000 }, async (t) => {
  // The preset is for pings of seconds.
  const own = `<script type="module">
    import { install } from '/reseat.js';
    install({ hideOffline: true, keepalive: { receive: '2', answer: '3', every: 100 } });
  </script>`;
  const html = RECIPE.code('html').replace(/<script src="\/reseat.*<\/script>/, () => own);
  assert.ok(html.includes(own));
  const world = await play(t, { html, options: { pingInterval: 200, pingTimeout: 300 } });
  await once(world.peer.conn, 'heartbeat'); // the upgrade is over at both ends
  let beats = 0;
  world.relay.goDown();
  await world.tap.until(() => !world.tap.attached);
  for await (const _ of on(world.peer.conn, 'heartbeat')) if (++beats === 20) break; // 4 s at the least
  const came = new Promise((done) => world.socket.once('news', done));
  world.peer.emit('news', 'while you were away');
  world.socket.emit('still here');
  world.relay.comeUp();
  await Promise.all([came, new Promise((done) => world.peer.once('still here', done))]);
  wantUnnoticed(world);
});

test("once the grace period is over, Socket.IO's own recovery takes its turn", { timeout: 180_000 }, async (t) => {
  const world = await play(t, { options: { connectionStateRecovery: {} }, flags: ['--grace', '300ms'] });
  const came = [];
  world.socket.on('news', (n) => came.push(n));
  world.peer.emit('news', 1);
  await new Promise((done) => world.socket.once('news', done));
  world.relay.goDown();
  await world.tap.until(() => !world.tap.attached);
  world.peer.emit('news', 2);
  const [reason] = await once(world.peer, 'disconnect');
  assert.equal(reason, 'transport close');
  const again = once(world.io, 'connection');
  world.relay.comeUp();
  const [peer] = await again;
  assert.deepEqual({ recovered: peer.recovered, id: peer.id }, { recovered: true, id: world.peer.id });
  await new Promise((done) => world.socket.once('news', done));
  assert.deepEqual(came, [1, 2]);
});

test('the offline event of the window closes Socket.IO, and hideOffline hides it', { timeout: 180_000 }, async (t) => {
  const html = RECIPE.code('html');
  const told = await play(t, { html: html.replace(' data-hide-offline', '') });
  globalThis.dispatchEvent(new Event('offline'));
  assert.deepEqual(told.clientEvents.slice(0, 2), ['connect', 'disconnect']);
  const spared = await play(t, { html });
  globalThis.dispatchEvent(new Event('offline'));
  spared.peer.on('still there?', (answer) => answer('yes'));
  assert.equal(await spared.socket.emitWithAck('still there?'), 'yes');
  wantUnnoticed(spared);
});
