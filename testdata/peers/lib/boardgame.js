// A boardgame.io server with one game, and the recipe for boardgame.io in front of it. One
// player sits in the page; the other connects to the server directly.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { Flow } from './flow.js';
import { recipe } from './recipes.js';
import { onTransport, watchClient, watchOpened } from './socketio.js';
import { event, openWorld } from './world.js';

const require = createRequire(import.meta.url);
const { Server } = require('boardgame.io/server');
const { Client } = require('boardgame.io/client');
const { SocketIO } = require('boardgame.io/multiplayer');

const RECIPE = recipe('boardgame.io');

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

/** The recipe's world, with both players seated. @param {any} t @param {import('./world.js').Options} options */
export async function play(t, options = {}) {
  const game = await openGame(t);
  const other = await seat(t, game);
  const opened = watchOpened(game.io);
  const world = await openWorld(t, RECIPE, () => game, { ...options, server: game.server });
  game.server.handshakes = 0;
  await world.page.run(RECIPE.code('html'), { 'bundle.js': await bundle() });
  const { client } = globalThis.bundled;
  world.page.onLeave(() => client.stop());
  const { socket } = client.transport;
  const clientEvents = watchClient(socket);
  await onTransport(socket);
  await until(client, () => client.getState());
  await until(other, () => seated(other));
  const seen = watchSeat(other);
  /** Neither player has noticed anything. */
  const want = () => assert.deepEqual([clientEvents, seen], [['connect'], []]);
  return { ...world, opened: opened(), client, other, clientEvents, seen, flows: flows(client, other), want };
}

/** The server as the recipe has it, on loopback. */
async function openGame(t) {
  const { Duel } = await import(`data:text/javascript;base64,${Buffer.from(DUEL).toString('base64')}`);
  const { server } = RECIPE.run('server.js', { Server, games: [Duel] });
  const { listen } = server.app;
  server.app.listen = (port, done) => listen.call(server.app, port, '127.0.0.1', done);
  const { appServer } = await server.run(0);
  Object.assign(appServer, { addr: `127.0.0.1:${appServer.address().port}`, handshakes: 0 });
  appServer.on('upgrade', () => appServer.handshakes++);
  const { _io: io } = server.app;
  t.after(() => io.close());
  return { server: appServer, Duel, io };
}

/** Player 1, next to the server. */
async function seat(t, { server, Duel }) {
  const multiplayer = SocketIO({ server: server.addr, socketOpts: { transports: ['websocket'] } });
  const other = Client({ game: Duel, multiplayer, matchID: 'm1', playerID: '1', debug: false });
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

/** Numbered moves of the page's player, which the server passes on, and chat messages of the other. */
function flows(client, other) {
  const up = new Flow('up', (n, filler) => client.moves.say(n, filler));
  const down = new Flow('down', (n, filler) => other.sendChatMessage({ n, filler }));
  other.subscribe(({ G }) => G.n !== up.received && up.heard(G.n, G.filler));
  client.subscribe(() => {
    for (const { payload } of client.chatMessages.slice(down.received)) down.heard(payload.n, payload.filler);
  });
  return [up, down];
}

/** The moment when the server's engine pings the page. */
export function nextPing({ io, client }) {
  const socket = io.engine.clients[client.transport.socket.io.engine.id];
  return event(socket, 'packetCreate', ({ type }) => type === 'ping');
}
