// The recipe for a plain `ws` server: a page on another host, with a ReseatSocket.

import { once } from 'node:events';
import { WebSocketServer } from 'ws';
import { Flow } from './flow.js';
import { startGateway } from './gateway.js';
import { Page } from './page.js';
import { recipe } from './recipes.js';
import { Relay } from './relay.js';
import { openServer } from './server.js';

export const RECIPE = recipe('A plain ws server');
export const PAGE = 'http://localhost:5173';

/** The recipe's game server, gateway and page, with a network between the latter. */
export async function play(t, script, flags = []) {
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
export function flows({ socket, game }) {
  const up = new Flow('up', (n, filler) => socket.send(encode(n, filler)));
  const down = new Flow('down', (n, filler) => game.send(encode(n, filler)));
  game.on('message', (data, binary) => heard(up, data, binary));
  socket.addEventListener('message', ({ data }) => heard(down, data, typeof data !== 'string'));
  return [up, down];
}
