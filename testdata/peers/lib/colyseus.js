// A Colyseus server with one kind of room, and the recipe for Colyseus in front of it.

import assert from 'node:assert/strict';
import { Room, Server } from '@colyseus/core';
import { schema, t as field } from '@colyseus/schema';
import { WebSocketTransport } from '@colyseus/ws-transport';
import { WebSocket } from 'ws';
import { Flow } from './flow.js';
import { startGateway } from './gateway.js';
import { Page } from './page.js';
import { recipe } from './recipes.js';
import { Relay } from './relay.js';
import { openServer } from './server.js';

globalThis.WebSocket ??= WebSocket; // Colyseus is made for Node 22, which has one, and reads its constants

export const RECIPE = recipe('Colyseus');

const BattleState = schema({ ups: field.number().default(0), last: field.string().default('') });

/**
 * Starts the server; a process can have only one. A room passes what happens to its players
 * to `game.note` and what they send to `game.onUp`. It keeps the seat of a player who
 * dropped for `game.keep` seconds.
 *
 * @param {import('node:test').TestContext} t
 */
export async function openColyseus(t) {
  const game = { addr: '', note: (_entry) => {}, onUp: (_player, _message) => {}, player: null, keep: 20 };
  const server = await openServer(t, (server) => {
    const transport = new WebSocketTransport({ server });
    const battles = new Server({ transport, greet: false, gracefullyShutdown: false });
    battles.define('battle', battleRoom(game));
    t.after(() => battles.gracefullyShutdown(false));
    Object.assign(game, { server, transport });
    return battles.listen(0, '127.0.0.1');
  });
  return Object.assign(game, { addr: server.addr });
}

/** The class of the game's rooms. */
function battleRoom(game) {
  return class Battle extends Room {
    onCreate() {
      this.state = new BattleState();
      this.onMessage('up', (player, message) => {
        this.state.ups++;
        this.state.last = String(message.n);
        game.onUp(player, message);
      });
      this.onMessage('double', (_player, n) => 2 * n);
      this.onMessageBytes('bytes', (player, bytes) => player.sendBytes('bytes', bytes));
      this.onMessage('throw me out', (player, code) => player.leave(code));
    }

    onAuth(_player, options) {
      return options.ticket !== 'forged';
    }

    onJoin(player, options) {
      game.note({ join: options.ticket ?? 'none' });
      game.player = player;
    }

    onDrop(player, code) {
      game.note({ drop: code });
      this.allowReconnection(player, game.keep).then(() => {}, () => {}); // rejected where nobody comes back
    }

    onReconnect() {
      game.note('reconnected');
    }

    onLeave(_player, code) {
      game.note({ leave: code });
    }
  };
}

/**
 * The recipe's gateway, with a network between it and the page, which is opened there.
 *
 * @param {import('node:test').TestContext} t
 * @param {import('./page.js').Page} page
 * @param {any} game
 * @param {string[]} flags of the gateway, besides the recipe's
 */
export async function playground(t, page, game, flags = []) {
  const gateway = await startGateway(t, [...RECIPE.flags({ 'localhost:2567': game.addr }), ...flags]);
  const relay = await Relay.open(t, gateway.addr);
  page.open(`http://${relay.addr}`);
  return { page, tap: page.tap, game, server: game.server, gateway, relay };
}

/** What the player's library and the room hear of the connection, from here on. */
export function watch({ game }, room) {
  const unwanted = [];
  game.note = (entry) => unwanted.push(entry);
  room.onDrop((code) => unwanted.push(`dropped with ${code}`));
  room.onReconnect(() => unwanted.push('the page reconnected'));
  room.onLeave((code) => unwanted.push(`left with ${code}`));
  room.onError((code) => unwanted.push(`error ${code}`));
  return unwanted;
}

/** Numbered messages both ways. */
export function flows({ game }, room) {
  const up = new Flow('up', (n, filler) => room.send('up', { n, filler }));
  const down = new Flow('down', (n, filler) => game.player.send('down', { n, filler }));
  game.onUp = (_player, { n, filler }) => up.heard(n, filler);
  room.onMessage('down', ({ n, filler }) => down.heard(n, filler));
  return [up, down];
}

/**
 * The window's `offline` event, in a page of its own.
 *
 * @param {import('node:test').TestContext} t
 * @param {string} html of the page
 * @param {string[]} want what the room hears of it
 */
export async function goOffline(t, html, want) {
  const page = new Page(t);
  const world = await playground(t, page, await openColyseus(t));
  const { room } = await page.run(html, { 'game.js': RECIPE.code('game.js') });
  page.onLeave(() => room.connection.close());
  await echoed(room);
  const unwanted = watch(world, room);
  globalThis.dispatchEvent(new Event('offline'));
  assert.deepEqual(unwanted, want);
  if (want.length === 0) await echoed(room);
}

/** Sends some bytes, and waits for their echo. */
export function echoed(room) {
  const answer = new Promise((done) => room.onMessage('bytes', done));
  room.sendBytes('bytes', Uint8Array.of(1, 2, 3));
  return answer;
}
