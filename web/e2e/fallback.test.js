// Servers that do not know reseat.v1.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { suiteBrowser } from './support/browser.js';
import { startGame } from './support/game.js';
import { startGateway } from './support/gateway.js';
import { RemotePlayer, connect, flows, openSite, settle } from './support/scene.js';
import { startSite } from './support/site.js';

const limit = { timeout: 180_000 };

describe('towards a server without Reseat', () => {
  const browser = suiteBrowser();

  /** A page that has Reseat's client from a gateway, and a game server that is somewhere else. */
  async function open(t, options) {
    const [site, game] = await Promise.all([startSite(t), startGame(t, options)]);
    const gateway = await startGateway(t, '--upstream', 'ws://127.0.0.1:1', '--origin', site.origin);
    const page = await browser.page(t);
    let attempts = 0;
    page.on('websocket', () => attempts++);
    await openSite(page, { site, gateway });
    const player = new RemotePlayer(page);
    return { page, player, game, gateway, attempts: () => attempts };
  }

  /** Plays over the newest connection, which is an ordinary WebSocket; returns the report. */
  async function wantOrdinary({ player, game }, connections) {
    await player.until('the page has its open', ({ count }) => count.open);
    const seat = game.seats.at(-1);
    if (seat.sent === 0) seat.start(7);
    await player.do('player.start(7)');
    await flows(player, seat);
    const { page } = await settle(player, seat);
    assert.equal(page.session, null, 'there is no session');
    assert.equal(game.seats.length, connections, 'connections that the game server had');
    return page;
  }

  test('that chooses no subprotocol, the page opens a second connection without the offer', limit, async (t) => {
    const it = await open(t, { handleProtocols: () => false });
    await connect(it.page, { url: it.game.url });
    const { protocol } = await wantOrdinary(it, 2);
    assert.equal(protocol, '');
    assert.deepEqual(
      it.game.seats.map(({ offered }) => offered),
      ['reseat.v1, reseat.parts, reseat.refusals, reseat.settled.0.0', ''],
    );
  });

  test(
    'that takes the first offer unseen and speaks first, the page throws that away and opens another',
    limit,
    async (t) => {
      const it = await open(t, {});
      it.game.greet = (seat) => seat.start(7);
      await connect(it.page, { url: it.game.url });
      await wantOrdinary(it, 2);
      assert.deepEqual(
        it.game.seats.map(({ offered }) => offered),
        ['reseat.v1, reseat.parts, reseat.refusals, reseat.settled.0.0', ''],
      );
    },
  );

  test(
    'that takes the first offer unseen and is silent, the page waits 5 s for a hello and opens another',
    limit,
    async (t) => {
      const it = await open(t, {});
      await connect(it.page, { url: it.game.url });
      await wantOrdinary(it, 2);
    },
  );

  test("that chooses one of the application's subprotocols, the one connection serves", limit, async (t) => {
    const it = await open(t, {});
    await connect(it.page, { url: it.game.url, protocols: ['chat.v2', 'chat.v1'] });
    const { protocol } = await wantOrdinary(it, 1);
    assert.equal(protocol, 'chat.v2');
    assert.equal(
      it.game.seats[0].offered,
      'chat.v2, chat.v1, reseat.v1, reseat.parts, reseat.refusals, reseat.settled.0.0',
    );
  });

  test("a close of the server's passes through, and so does one of the page's", limit, async (t) => {
    for (const side of ['page', 'game']) {
      const it = await open(t, { handleProtocols: () => false });
      await connect(it.page, { url: it.game.url });
      await it.player.until('the page has its open', ({ count }) => count.open);
      const seat = it.game.seats.at(-1);
      if (side === 'page') await it.player.do("player.socket.close(4001, 'so long')");
      else seat.close(4001, 'so long');
      const { events } = await it.player.until('the page has its close', ({ count }) => count.close);
      const { code, reason, wasClean } = events.at(-1);
      assert.deepEqual({ code, reason, wasClean }, { code: 4001, reason: 'so long', wasClean: true });
      assert.deepEqual(seat.ended, { code: 4001, reason: 'so long' });
    }
  });

  test('with fallback: false the page opens no connection without the offer', limit, async (t) => {
    const it = await open(t, { handleProtocols: () => false });
    await connect(it.page, { url: it.game.url, options: { fallback: false } });
    await wantFailed(it);
    assert.deepEqual(
      it.game.seats.map(({ offered }) => offered),
      ['reseat.v1, reseat.parts, reseat.refusals, reseat.settled.0.0'],
    );
  });

  test('that a gateway stands before, the page makes no such attempt: its failure is a failure', limit, async (t) => {
    const it = await open(t, {});
    await connect(it.page, { url: `ws://${it.gateway.host}/` });
    await wantFailed(it, 4502); // the game server here knows no such offer
  });
});

/** A first connection that has failed, and no second one. */
async function wantFailed({ player, attempts }, code = 1006) {
  const { events } = await player.until('the page has its close', ({ count }) => count.close);
  assert.deepEqual(
    events.map(({ type }) => type),
    ['error', 'close'],
  );
  assert.deepEqual([events[1].code, events[1].wasClean, attempts()], [code, false, 1]);
}
