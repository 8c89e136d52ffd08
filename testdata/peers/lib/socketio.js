// The recipe for Socket.IO: the bundle that its server serves to browsers, in a page that
// has called install().

import assert from 'node:assert/strict';
import { Server } from 'socket.io';
import { Flow } from './flow.js';
import { recipe } from './recipes.js';
import { event, openWorld } from './world.js';

export const RECIPE = recipe('Socket.IO');

/** The code of the recipe with options for `io`. @param {string} options */
export const withOptions = (options) => RECIPE.code('game.js').replace('io()', `io(${options})`);

/**
 * The recipe's world, once its client has come to the transport: `websocket`, unless it is to have another alone.
 * @param {any} t
 * @param {{ game?: string, html?: string, options?: object, transport?: string } & import('./world.js').Options} options those of the server, besides the recipe's
 */
export async function play(t, { transport, game = transport ? withOptions(`{ transports: ['${transport}'] }`) : RECIPE.code('game.js'), html = RECIPE.code('html'), options = {}, ...rest } = {}) {
  const world = await openWorld(t, RECIPE, (server) => serve(server, options), rest);
  const joined = event(world.io, 'connection');
  const { socket } = await world.page.run(html, { 'game.js': game });
  world.page.onLeave(() => socket.disconnect());
  const clientEvents = watchClient(socket);
  const [peer] = await joined;
  await onTransport(socket, transport);
  return { ...world, opened: world.opened(), socket, clientEvents, peer, flows: flows(socket, peer, transport !== 'polling'), want: () => wantUnnoticed({ ...world, clientEvents }) };
}

/** The recipe's server, and its connection events. */
function serve(server, own) {
  class OwnServer extends Server {
    constructor(server, options) {
      super(server, { ...options, ...own });
    }
  }
  const { io } = RECIPE.run('server.js', { Server: OwnServer, server });
  const serverEvents = [];
  io.engine.on('connection', (raw) => {
    serverEvents.push('engine connection');
    raw.on('close', (reason) => serverEvents.push(`engine close: ${reason}`));
  });
  io.on('connection', (peer) => {
    serverEvents.push('connection');
    peer.on('disconnect', (reason) => serverEvents.push(`disconnect: ${reason}`));
  });
  return { io, serverEvents, opened: watchOpened(io) };
}

/** When the server's engine had its next connection, as of performance.now(). Its pings count from there. */
export function watchOpened(io) {
  let opened = 0;
  io.engine.once('connection', () => (opened = performance.now()));
  return () => opened;
}

/** The connection events of the client; its first `connect` is still to come. */
export function watchClient(socket) {
  const clientEvents = [];
  for (const event of ['connect', 'disconnect', 'connect_error']) socket.on(event, () => clientEvents.push(event));
  for (const event of ['error', 'close', 'reconnect', 'reconnect_attempt', 'reconnect_error', 'reconnect_failed']) {
    socket.io.on(event, () => clientEvents.push(`manager ${event}`));
  }
  return clientEvents;
}

/** The client begins by polling by default, and anew with another engine if that one is lost. */
export async function onTransport(socket, name = 'websocket') {
  for (;;) {
    if (!socket.connected) await event(socket, 'connect');
    const { engine } = socket.io;
    if (engine.transport.name === name) return;
    await Promise.race([event(engine, 'upgrade'), event(engine, 'close')]);
  }
}

function wantUnnoticed({ clientEvents, serverEvents }) {
  assert.deepEqual(clientEvents, ['connect']);
  assert.deepEqual(serverEvents, ['engine connection', 'connection']);
}

/** Numbered events both ways, with text and binary in turn (polling would want a browser's FileReader for the latter); those upward are acknowledged by Socket.IO, too. */
function flows(socket, peer, binary) {
  let acknowledged = 0;
  const data = (n, filler) => (n % 2 || !binary ? filler : Buffer.from(filler));
  const up = new Flow('up', (n, filler) => socket.emit('up', n, data(n, filler), (m) => m === ++acknowledged || up.fault(`acknowledgement of ${m}, want ${acknowledged}`)));
  const down = new Flow('down', (n, filler) => peer.emit('down', n, data(n, filler)));
  peer.on('up', (n, filler, acknowledge) => {
    up.heard(n, Buffer.from(filler).toString());
    acknowledge(n);
  });
  socket.on('down', (n, filler) => down.heard(n, Buffer.from(filler).toString()));
  return [up, down];
}
