// A Colyseus server with one kind of room, and the recipe for Colyseus in front of it.

import assert from 'node:assert/strict';
import { Room, Server } from '@colyseus/core';
import { schema, t as field } from '@colyseus/schema';
import { WebSocketTransport } from '@colyseus/ws-transport';
import { WebSocket } from 'ws';
import { Flow } from './flow.js';
import { Page } from './page.js';
import { recipe } from './recipes.js';
import { openServer } from './server.js';
import { openWorld } from './world.js';

globalThis.WebSocket ??= WebSocket; // Colyseus is made for Node 22, which has one, and reads its constants

const RECIPE = recipe('Colyseus');

const BattleState = schema({ ups: field.number().default(0), last: field.string().default('') });

/**
 * Starts the server; a process can have only one. A room passes what happens to its players
 * to `game.note` and what they send to `game.onUp`.
 */
async function openGame(t) {
  const game = { note: (_entry) => {}, onUp: (_message) => {}, player: null };
  const server = await openServer(t, (server) => {
    const transport = new WebSocketTransport({ server });
    const battles = new Server({ transport, greet: false, gracefullyShutdown: false });
    battles.define('battle', battleRoom(game));
    t.after(() => battles.gracefullyShutdown(false));
    Object.assign(game, { clients: transport.wss.clients });
    return battles.listen(0, '127.0.0.1');
  });
  return { server, game };
}

/** The class of the game's rooms. */
function battleRoom(game) {
  return class Battle extends Room {
    onCreate() {
      this.state = new BattleState();
      this.onMessage('up', (_player, message) => {
        this.state.ups++;
        this.state.last = String(message.n);
        game.onUp(message);
      });
      this.onMessage('double', (_player, n) => 2 * n);
    }

    onJoin(player) {
      game.note('joined');
      game.player = player;
    }

    onDrop(player, code) {
      game.note({ drop: code });
      this.allowReconnection(player, 20).then(() => {}, () => {}); // rejected where nobody comes back
    }

    onReconnect() {
      game.note('reconnected');
    }

    onLeave(_player, code) {
      game.note({ leave: code });
    }
  };
}

/** The recipe's world with a player in a room. @param {any} t @param {import('./world.js').Options} options */
export async function play(t, options = {}) {
  const page = new Page(t, options.plain);
  const { server, game } = await openGame(t);
  const world = await openWorld(t, RECIPE, () => ({ game }), { ...options, page, server });
  const { client, room } = await page.run(RECIPE.code('html'), { 'game.js': RECIPE.code('game.js') });
  page.onLeave(() => room.connection.isOpen && room.leave());
  await room.request('double', 1); // by then the room knows that its player has joined
  const unwanted = []; // what the player and the room hear of the connection from here on
  game.note = (entry) => unwanted.push(entry);
  room.onDrop((code) => unwanted.push(`dropped with ${code}`));
  room.onReconnect(() => unwanted.push('the page reconnected'));
  room.onLeave((code) => unwanted.push(`left with ${code}`));
  room.onError((code) => unwanted.push(`error ${code}`));
  const [up, down] = flows(game, room);
  const say = async () => assert.equal(await room.request('double', 21, { timeout: 30_000 }), 42);
  const want = async () => {
    assert.deepEqual(unwanted, []);
    while (room.state.ups !== up.sent) await new Promise((done) => room.onStateChange.once(done));
    assert.equal(room.state.last, String(up.sent));
  };
  return { ...world, opened: performance.now(), client, room, unwanted, flows: [up, down], say, want };
}

/** Numbered messages both ways. */
function flows(game, room) {
  const up = new Flow('up', (n, filler) => room.send('up', { n, filler }));
  const down = new Flow('down', (n, filler) => game.player.send('down', { n, filler }));
  game.onUp = ({ n, filler }) => up.heard(n, filler);
  room.onMessage('down', ({ n, filler }) => down.heard(n, filler));
  return [up, down];
}

/** The grace period ends, and Colyseus's own reconnection brings the player back, as the recipe says. */
export async function outstayGrace(t) {
  const again = 'client.reconnect(room.reconnectionToken)';
  assert.ok(RECIPE.text.includes(again), `the recipe has ${again}`);
  const { relay, client, room, game } = await play(t, { flags: ['--grace', '300ms'] });
  const left = new Promise((done) => room.onLeave(done));
  const heard = [];
  const lost = new Promise((done) => (game.note = (entry) => heard.push(entry) && done(undefined)));
  const comeUp = relay.goDown();
  await lost;
  comeUp();
  assert.equal(await left, 4404);
  const back = await new Function('client', 'room', `return ${again}`)(client, room);
  assert.equal(back.sessionId, room.sessionId);
  assert.deepEqual(heard, [{ drop: 1001 }, 'reconnected']);
  await back.leave();
}
