import assert from 'node:assert/strict';
import { on, once } from 'node:events';
import { test } from 'node:test';
import { Server } from 'socket.io';
import { tenCuts, wantUntouched } from './lib/cuts.js';
import { Flow } from './lib/flow.js';
import { startGateway } from './lib/gateway.js';
import { Page } from './lib/page.js';
import { recipe } from './lib/recipes.js';
import { Relay } from './lib/relay.js';
import { openServer } from './lib/server.js';

// The recipe for Socket.IO: the bundle that its server serves to browsers, in a page that
// has called install().

const RECIPE = recipe('Socket.IO');
const GAME = RECIPE.code('game.js');
const KEEPALIVE = ", keepalive: 'engine.io'";
const WEBSOCKET_ONLY = "io({ transports: ['websocket'] })";

/** Server options of a test's own, besides the recipe's. */
const withOptions = (own) => class extends Server {
  constructor(server, options) {
    super(server, { ...options, ...own });
  }
};

/** The recipe's server, gateway and page, with a network between the latter. */
async function play(t, { game = GAME, html = RECIPE.code('html'), options = {}, flags = [], recipeFlags = (addresses) => RECIPE.flags(addresses) } = {}) {
  const page = new Page(t);
  const server = await openServer(t);
  const { io } = RECIPE.run('server.js', { Server: withOptions(options), server });
  const gateway = await startGateway(t, [...recipeFlags({ 'localhost:3000': server.addr }), ...flags]);
  const relay = await Relay.open(t, gateway.addr);
  page.open(`http://${relay.addr}`);
  const world = { page, tap: page.tap, server, io, gateway, relay, ...watchServer(io) };
  const joined = new Promise((done) => io.once('connection', done));
  const { socket } = await page.run(html, { 'game.js': game });
  page.onLeave(() => socket.disconnect());
  Object.assign(world, { socket, ...watchClient(socket), peer: await joined });
  await onWebSocket(socket);
  return world;
}

/** The connection events of the server. */
function watchServer(io) {
  const serverEvents = [];
  io.engine.on('connection', (raw) => {
    serverEvents.push('engine connection');
    raw.on('close', (reason) => serverEvents.push(`engine close: ${reason}`));
  });
  io.on('connection', (peer) => {
    serverEvents.push('connection');
    peer.on('disconnect', (reason) => serverEvents.push(`disconnect: ${reason}`));
  });
  return { serverEvents };
}

/** The connection events of the client; its first `connect` is still to come. */
function watchClient(socket) {
  const clientEvents = [];
  for (const event of ['connect', 'disconnect', 'connect_error']) socket.on(event, () => clientEvents.push(event));
  for (const event of ['error', 'close', 'reconnect', 'reconnect_attempt', 'reconnect_error', 'reconnect_failed']) {
    socket.io.on(event, () => clientEvents.push(`manager ${event}`));
  }
  return { clientEvents };
}

/** The client begins by polling, unless it was told not to. */
async function onWebSocket(socket) {
  const { engine } = socket.io;
  if (!socket.connected) await new Promise((done) => socket.once('connect', done));
  if (engine.transport.name !== 'websocket') await new Promise((done) => engine.once('upgrade', done));
}

function wantUnnoticed({ clientEvents, serverEvents, server }) {
  assert.deepEqual(clientEvents, ['connect']);
  assert.deepEqual(serverEvents, ['engine connection', 'connection']);
  assert.equal(server.handshakes, 1);
}

/** Numbered events both ways, with text and binary in turn; those upward are acknowledged by Socket.IO, too. */
function flows({ socket, peer }) {
  let acknowledged = 0;
  const data = (n, filler) => (n % 2 ? filler : Buffer.from(filler));
  const up = new Flow('up', (n, filler) => socket.emit('up', n, data(n, filler), (m) => m === ++acknowledged || up.fault(`acknowledgement of ${m}`)));
  const down = new Flow('down', (n, filler) => peer.emit('down', n, data(n, filler)));
  peer.on('up', (n, filler, acknowledge) => {
    up.heard(n, Buffer.from(filler).toString());
    acknowledge(n);
  });
  socket.on('down', (n, filler) => down.heard(n, Buffer.from(filler).toString()));
  return [up, down];
}

for (const [name, game] of Object.entries({ 'default transports': GAME, 'websocket alone': GAME.replace('io()', WEBSOCKET_ONLY) })) {
  test(`ten cuts go unnoticed: ${name}`, { timeout: 60_000 }, async (t) => {
    assert.ok(RECIPE.text.includes(WEBSOCKET_ONLY) && game.includes('io('));
    const world = await play(t, { game });
    await tenCuts(world, flows(world));
    wantUnnoticed(world);
  });
}

test('a ping of the server that falls into a cut is answered after it', { timeout: 60_000 }, async (t) => {
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

test('without keepalives a cut longer than pingTimeout makes Socket.IO begin anew by itself', { timeout: 60_000 }, async (t) => {
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

test('with keepalives on both sides a player who is gone for much longer than pingTimeout is not missed', { timeout: 60_000 }, async (t) => {
  const html = RECIPE.code('html').replace(KEEPALIVE, ", keepalive: { receive: '2', answer: '3', every: 100 }"); // the preset's are for pings of seconds
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

test("once the grace period is over, Socket.IO's own recovery takes its turn", { timeout: 60_000 }, async (t) => {
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

test('the offline event of the window closes Socket.IO, and hideOffline hides it', { timeout: 60_000 }, async (t) => {
  const html = RECIPE.code('html');
  const told = await play(t, { html: html.replace('hideOffline: true, ', '') });
  globalThis.dispatchEvent(new Event('offline'));
  assert.deepEqual(told.clientEvents.slice(0, 2), ['connect', 'disconnect']);
  const spared = await play(t, { html });
  globalThis.dispatchEvent(new Event('offline'));
  spared.peer.on('still there?', (answer) => answer('yes'));
  assert.equal(await spared.socket.emitWithAck('still there?'), 'yes');
  wantUnnoticed(spared);
});
