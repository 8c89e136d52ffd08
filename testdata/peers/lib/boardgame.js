// A boardgame.io server with one game, and the recipe for boardgame.io in front of it. One
// player sits in the page; the other connects to the server directly.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { Flow } from './flow.js';
import { startGateway } from './gateway.js';
import { Page } from './page.js';
import { recipe } from './recipes.js';
import { Relay } from './relay.js';
import { watchClient } from './socketio.js';

const require = createRequire(import.meta.url);
const { Server } = require('boardgame.io/server');
const { Client } = require('boardgame.io/client');
const { SocketIO } = require('boardgame.io/multiplayer');

export const RECIPE = recipe('boardgame.io');

/** The module duel.js of both sides: player 0 says something numbered, and it is always their turn. */
const DUEL = `export const Duel = {
  name: 'duel',
  disableUndo: true,
  setup: () => ({ n: 0, filler: '' }),
  moves: { say: (_context, n, filler) => ({ n, filler }) },
};`;

/** The recipe's page as a bundler makes it: a classic script, with the libraries' code for browsers. */
async function bundle() {
  const duel = {
    name: 'duel.js',
    setup(own) {
      own.onResolve({ filter: /^\.\/duel\.js$/ }, ({ path }) => ({ path, namespace: 'duel' }));
      own.onLoad({ filter: /./, namespace: 'duel' }, () => ({ contents: DUEL }));
    },
  };
  const { outputFiles } = await build({
    stdin: { contents: `${RECIPE.code('game.js')}\nexport { client };`, resolveDir: fileURLToPath(new URL('.', import.meta.url)) },
    bundle: true,
    write: false,
    platform: 'browser',
    globalName: 'bundled',
    define: { 'process.env.NODE_ENV': '"production"' },
    plugins: [duel],
  });
  return outputFiles[0].text;
}

/** The recipe's server, gateway and page, with a network between the latter, and both players seated. */
export async function play(t, { flags = [] } = {}) {
  const page = new Page(t);
  const server = await openServer(t);
  const gateway = await startGateway(t, [...RECIPE.flags({ 'localhost:8000': server.addr }), ...flags]);
  const relay = await Relay.open(t, gateway.addr);
  page.open(`http://${relay.addr}`);
  const other = await seat(t, server);
  server.handshakes = 0;
  await page.run(RECIPE.code('html'), { 'bundle.js': await bundle() });
  const { client } = globalThis.bundled;
  page.onLeave(() => client.stop());
  const clientEvents = watchClient(client.transport.socket).clientEvents;
  await onWebSocket(client.transport.socket);
  await until(client, () => client.getState());
  await until(other, () => seated(other));
  return { page, tap: page.tap, server, gateway, relay, client, other, clientEvents, seen: watchSeat(other) };
}

/** The server as the recipe has it, on loopback. */
async function openServer(t) {
  const { Duel } = await import(`data:text/javascript;base64,${Buffer.from(DUEL).toString('base64')}`);
  const { server } = RECIPE.run('server.js', { Server, games: [Duel] });
  const { listen } = server.app;
  server.app.listen = (port, done) => listen.call(server.app, port, '127.0.0.1', done);
  const { appServer } = await server.run(0);
  const world = Object.assign(appServer, { addr: `127.0.0.1:${appServer.address().port}`, handshakes: 0, game: Duel, io: server.app._io });
  appServer.on('upgrade', () => world.handshakes++);
  t.after(() => world.io.close());
  return world;
}

/** Player 1, next to the server. */
async function seat(t, { addr, game }) {
  const other = Client({ game, multiplayer: SocketIO({ server: addr, socketOpts: { transports: ['websocket'] } }), matchID: 'm1', playerID: '1', debug: false });
  other.start();
  t.after(() => other.stop());
  await until(other, () => other.getState());
  return other;
}

/** Whether player 1 sees player 0 connected. */
export const seated = ({ matchData }) => Boolean(matchData?.[0].isConnected);

/** What player 1 sees of player 0's connection from here on: each change. */
function watchSeat(other) {
  const seen = [];
  let now = seated(other);
  other.subscribe(() => {
    if (seated(other) !== now) seen.push((now = seated(other)) ? 'connected' : 'disconnected');
  });
  return seen;
}

/** Resolves when that is so, which is looked at after each change of a client's state. It stays subscribed: the library reuses numbers of those who leave. */
export function until(client, when) {
  return new Promise((done) => client.subscribe(() => when() && done(undefined)));
}

async function onWebSocket(socket) {
  if (!socket.connected) await new Promise((done) => socket.once('connect', done));
  const { engine } = socket.io;
  if (engine.transport.name !== 'websocket') await new Promise((done) => engine.once('upgrade', done));
}

/** Neither player has noticed anything. */
export function wantUnnoticed({ clientEvents, seen, server }) {
  assert.deepEqual(clientEvents, ['connect']);
  assert.deepEqual(seen, []);
  assert.equal(server.handshakes, 1);
}

/** Numbered moves of the page's player, which the server passes on, and chat messages of the other. */
export function flows({ client, other }) {
  const up = new Flow('up', (n, filler) => client.moves.say(n, filler));
  const down = new Flow('down', (n, filler) => other.sendChatMessage({ n, filler }));
  other.subscribe(({ G }) => G.n !== up.received && up.heard(G.n, G.filler));
  client.subscribe(() => {
    for (const { payload } of client.chatMessages.slice(down.received)) down.heard(payload.n, payload.filler);
  });
  return [up, down];
}

/** The moment when the server's engine pings the page. */
export function nextPing({ server, client }) {
  const socket = server.io.engine.clients[client.transport.socket.io.engine.id];
  return new Promise((done) => socket.on('packetCreate', ({ type }) => type === 'ping' && done(undefined)));
}

/** The page's player is gone for the server. */
export const gone = (server) => once(server.io.of('/duel'), 'disconnect');
