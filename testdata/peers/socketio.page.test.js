import assert from 'node:assert/strict';
import { on } from 'node:events';
import { test as untimed } from 'node:test';
import { tenCuts, wantUntouched } from './lib/cuts.js';
import { RECIPE, onTransport, play } from './lib/socketio.js';
import { detached, event, outage } from './lib/world.js';

const test = (name, run) => untimed(name, { timeout: 180_000 }, run);
const html = RECIPE.code('html');

test('ten cuts go unnoticed', async (t) => tenCuts(await play(t)));

test('ten cuts go unnoticed without polling', async (t) => {
  assert.ok(RECIPE.text.includes("io({ transports: ['websocket'] })"));
  await tenCuts(await play(t, { transport: 'websocket' }));
});

test('a ping of the server that falls into a cut is answered after it', async (t) => {
  const world = await play(t, { bare: true, options: { pingInterval: 50 } }); // the gateway does not answer for the page
  const { conn } = world.peer;
  await event(conn, 'heartbeat'); // none is under way
  await event(conn, 'packetCreate', ({ type }) => type === 'ping');
  await outage(world); // before the ping has come through
  await event(conn, 'heartbeat');
  await world.tap.until(() => world.tap.attached);
  await wantUntouched(world);
});

test('without keepalives a cut longer than pingTimeout makes Socket.IO begin anew by itself', async (t) => {
  const world = await play(t, { html: html.replace(' data-keepalive="engine.io"', ''), bare: true, options: { pingInterval: 50, pingTimeout: 100 } });
  assert.deepEqual(await outage(world, () => event(world.peer, 'disconnect')), ['ping timeout', undefined]);
  await event(world.io, 'connection');
  await onTransport(world.socket);
  assert.notEqual(world.socket.id, world.peer.id);
});

test('with keepalives on both sides a player who is gone for much longer than pingTimeout is not missed', async (t) => {
  // The preset is for pings of seconds.
  const own = `<script type="module">
    import { install } from '/reseat.js';
    install({ hideOffline: true, keepalive: { receive: '2', answer: '3', every: 100 } });
  </script>`;
  const world = await play(t, { html: html.replace(/<script src="\/reseat.*<\/script>/, () => own), options: { pingInterval: 200, pingTimeout: 300 } });
  const { peer, socket } = world;
  await event(peer.conn, 'heartbeat'); // the upgrade is over at both ends
  const came = Promise.all([event(socket, 'news'), event(peer, 'still here')]);
  await outage(world, async () => {
    await detached(world);
    let beats = 0;
    for await (const _ of on(peer.conn, 'heartbeat')) if (++beats === 20) break; // 4 s at the least
    peer.emit('news', 'while you were away');
    socket.emit('still here');
  });
  await came;
  await world.want();
});

test("once the grace period is over, Socket.IO's own recovery takes its turn", async (t) => {
  const world = await play(t, { options: { connectionStateRecovery: {} }, flags: ['--grace', '300ms'] });
  const came = [];
  world.socket.on('news', (n) => came.push(n));
  world.peer.emit('news', 1);
  await event(world.socket, 'news');
  const reason = await outage(world, async () => {
    await detached(world);
    world.peer.emit('news', 2);
    return event(world.peer, 'disconnect');
  });
  assert.equal(reason[0], 'transport close');
  const [[peer]] = await Promise.all([event(world.io, 'connection'), event(world.socket, 'news')]);
  assert.deepEqual({ recovered: peer.recovered, id: peer.id }, { recovered: true, id: world.peer.id });
  assert.deepEqual(came, [1, 2]);
});

test('the offline event of the window closes Socket.IO, and hideOffline hides it', async (t) => {
  const told = await play(t, { html: html.replace(' data-hide-offline', '') });
  globalThis.dispatchEvent(new Event('offline'));
  assert.deepEqual(told.clientEvents.slice(0, 2), ['connect', 'disconnect']);
  const spared = await play(t);
  globalThis.dispatchEvent(new Event('offline'));
  await spared.flows[0].one();
  await spared.want();
});
