// The recipe for Socket.IO: the bundle that its server serves to browsers, in a page that
// has called install().

import assert from 'node:assert/strict';
import { Server } from 'socket.io';
import { Flow } from './flow.js';
import { startGateway } from './gateway.js';
import { Page } from './page.js';
import { recipe } from './recipes.js';
import { Relay } from './relay.js';
import { openServer } from './server.js';

export const RECIPE = recipe('Socket.IO');
export const GAME = RECIPE.code('game.js');

/** Server options of a test's own, besides the recipe's. */
const withOptions = (own) => class extends Server {
  constructor(server, options) {
    super(server, { ...options, ...own });
  }
};

/** The recipe's server, gateway and page, with a network between the latter. */
export async function play(t, { game = GAME, html = RECIPE.code('html'), options = {}, flags = [], recipeFlags = (addresses) => RECIPE.flags(addresses) } = {}) {
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

/** The connection events of the server, and when it had the first one, as of performance.now(). */
function watchServer(io) {
  const serverEvents = [];
  const times = { opened: 0 };
  io.engine.on('connection', (raw) => {
    times.opened ||= performance.now();
    serverEvents.push('engine connection');
    raw.on('close', (reason) => serverEvents.push(`engine close: ${reason}`));
  });
  io.on('connection', (peer) => {
    serverEvents.push('connection');
    peer.on('disconnect', (reason) => serverEvents.push(`disconnect: ${reason}`));
  });
  return { serverEvents, times };
}

/** The connection events of the client; its first `connect` is still to come. */
export function watchClient(socket) {
  const clientEvents = [];
  for (const event of ['connect', 'disconnect', 'connect_error']) socket.on(event, () => clientEvents.push(event));
  for (const event of ['error', 'close', 'reconnect', 'reconnect_attempt', 'reconnect_error', 'reconnect_failed']) {
    socket.io.on(event, () => clientEvents.push(`manager ${event}`));
  }
  return { clientEvents };
}

/** The client begins by polling by default, and anew with another engine if that one is lost. */
export async function onWebSocket(socket) {
  for (;;) {
    if (!socket.connected) await new Promise((done) => socket.once('connect', done));
    const { engine } = socket.io;
    if (engine.transport.name === 'websocket') return;
    await new Promise((done) => {
      engine.once('upgrade', done);
      engine.once('close', done);
    });
  }
}

export function wantUnnoticed({ clientEvents, serverEvents, server }) {
  assert.deepEqual(clientEvents, ['connect']);
  assert.deepEqual(serverEvents, ['engine connection', 'connection']);
  assert.equal(server.handshakes, 1);
}

/** Numbered events both ways, with text and binary in turn; those upward are acknowledged by Socket.IO, too. */
export function flows({ socket, peer }) {
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
