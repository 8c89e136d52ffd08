import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { tenCuts, wantUntouched } from './lib/cuts.js';
import { Flow } from './lib/flow.js';
import { startGateway } from './lib/gateway.js';
import { Page } from './lib/page.js';
import { recipe } from './lib/recipes.js';
import { Relay } from './lib/relay.js';
import { openServer } from './lib/server.js';

// The recipe for a plain `ws` server: a page on another host, with a ReseatSocket.

const RECIPE = recipe('A plain ws server');
const PAGE = 'http://localhost:5173';

/** The recipe's game server, gateway and page, with a network between the latter. */
async function play(t, script, flags = []) {
  const page = new Page(t);
  const server = await openServer(t);
  const wss = new WebSocketServer({ server });
  const joined = once(wss, 'connection');
  const gateway = await startGateway(t, [...RECIPE.flags({ 'localhost:9000': server.addr }), ...flags]);
  const relay = await Relay.open(t, gateway.addr);
  page.open(PAGE, { 'localhost:8080': relay.addr });
  const { socket } = await script(page);
  const [game] = await joined;
  await page.tap.until(() => page.tap.events.includes('open'));
  page.onLeave(() => socket.close());
  const unwanted = [];
  game.on('close', (code) => unwanted.push(`the server's socket closed with ${code}`));
  game.on('error', (error) => unwanted.push(`the server's socket: ${error.message}`));
  return { server, gateway, relay, page, tap: page.tap, socket, game, unwanted };
}

/** Numbered text and binary messages in turn. */
const encode = (n, filler) => (n % 2 ? `${n} ${filler}` : Buffer.from(`${n} ${filler}`));

/** @param {Flow} flow @param {any} data @param {boolean} binary */
function heard(flow, data, binary) {
  const [, n, filler] = /^(\d+) ([^]*)$/.exec(Buffer.from(data).toString()) ?? [];
  if (binary === (n % 2 === 1)) flow.fault(`message ${n} is of the wrong kind`);
  flow.heard(Number(n), filler);
}

/** Traffic both ways between the page's socket and the game's. */
function flows({ socket, game }) {
  const up = new Flow('up', (n, filler) => socket.send(encode(n, filler)));
  const down = new Flow('down', (n, filler) => game.send(encode(n, filler)));
  game.on('message', (data, binary) => heard(up, data, binary));
  socket.addEventListener('message', ({ data }) => heard(down, data, typeof data !== 'string'));
  return [up, down];
}

for (const compression of ['off', 'on']) {
  test(`ten cuts go unnoticed, compression ${compression}`, { timeout: 60_000 }, async (t) => {
    const world = await play(t, (page) => page.module(RECIPE.code('js')), ['--compression', compression]);
    await tenCuts(world, flows(world));
    assert.deepEqual(world.unwanted, []);
    assert.equal(world.server.handshakes, 1);
    assert.equal(world.socket.url, `ws://${world.relay.addr}/match/7`);
  });
}

test("the server's own heartbeat goes on while the client is away", { timeout: 60_000 }, async (t) => {
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

test('a page on another host needs --origin', { timeout: 60_000 }, async (t) => {
  const server = await openServer(t);
  new WebSocketServer({ server });
  const gateway = await startGateway(t, ['--upstream', `ws://${server.addr}`]);
  const [, answer] = await once(new WebSocket(`ws://${gateway.addr}/match/7`, { origin: PAGE }), 'unexpected-response');
  assert.equal(answer.statusCode, 403);
  answer.destroy();
  assert.equal(server.handshakes, 0);
});
