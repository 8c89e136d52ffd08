// A Colyseus server with one kind of room.

import { Room, Server, matchMaker } from '@colyseus/core';
import { schema } from '@colyseus/schema';
import { WebSocketTransport } from '@colyseus/ws-transport';
import { openServer } from './server.js';

const BattleState = schema({ ups: { type: 'number', default: 0 }, last: { type: 'string', default: '' } });

/**
 * Starts the server, of which a process has one. A room tells `game.note` what happens to
 * its players, keeps the place of one who was lost for `game.keep` seconds, and hands `game.onUp`
 * what they send.
 *
 * @param {import('node:test').TestContext} t
 */
export async function openColyseus(t) {
  const server = await openServer(t);
  const transport = new WebSocketTransport({ server });
  const game = { addr: server.addr, server, transport, note: (_entry) => {}, onUp: (_player, _message) => {}, player: null, keep: 20 };
  const battles = new Server({ transport, greet: false, gracefullyShutdown: false });
  battles.define('battle', battleRoom(game));
  await matchMaker.accept();
  t.after(() => {
    clearInterval(transport.pingInterval);
    return battles.gracefullyShutdown(false);
  });
  return game;
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
      this.onMessage('bytes', (player, bytes) => player.sendBytes('bytes', bytes));
      this.onMessage('throw me out', (player, code) => player.leave(code));
    }

    onAuth(_player, options) {
      return options.ticket !== 'forged';
    }

    onJoin(player, options) {
      game.note({ join: options.ticket ?? 'none' });
      game.player = player;
    }

    async onLeave(player, consented) {
      game.note({ leave: consented });
      if (consented) return;
      await this.allowReconnection(player, game.keep).then(() => game.note('reconnected'), () => {});
    }
  };
}
