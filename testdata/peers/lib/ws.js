// The recipe for a plain `ws` server: a page on another host, with a ReseatSocket.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { WebSocketServer } from 'ws';
import { Flow } from './flow.js';
import { recipe } from './recipes.js';
import { openWorld } from './world.js';

const RECIPE = recipe('A plain ws server');
export const PAGE = 'http://localhost:5173';

/** A server whose first connection is `joined`. */
export const openGame = (server) => ({ joined: once(new WebSocketServer({ server }), 'connection') });

/** The recipe's world. @param {any} t @param {import('./world.js').Options} options */
export async function play(t, options = {}) {
  const world = await openWorld(t, RECIPE, openGame, { origin: PAGE, ...options });
  const { socket } = await world.page.module(RECIPE.code('js'));
  world.page.onLeave(() => socket.close());
  const [game] = await world.joined;
  if (socket.readyState !== socket.OPEN) await once(socket, 'open');
  const unwanted = [];
  game.on('close', (code) => unwanted.push(`the server's socket closed with ${code}`));
  game.on('error', (error) => unwanted.push(`the server's socket: ${error.message}`));
  return { ...world, socket, game, flows: flows(socket, game), want: () => assert.deepEqual(unwanted, []) };
}

/** Text and binary messages in turn, both ways between the page's socket and the game's. */
export function flows(socket, game) {
  const encode = (n, text) => (n % 2 ? text : Buffer.from(text));
  const up = new Flow('up', (n, _filler, text) => socket.send(encode(n, text)));
  const down = new Flow('down', (n, _filler, text) => game.send(encode(n, text)));
  const heard = (flow, data, binary) => {
    const n = flow.read(Buffer.from(data));
    if (binary === (n % 2 === 1)) flow.fault(`message ${n} is of the wrong kind`);
  };
  game.on('message', (data, binary) => heard(up, data, binary));
  socket.addEventListener('message', ({ data }) => heard(down, data, typeof data !== 'string'));
  return [up, down];
}
