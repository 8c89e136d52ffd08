// Code that knows nothing of Reseat, after install().
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { suiteBrowser } from './support/browser.js';
import { startGame } from './support/game.js';
import { RemotePlayer, flows, openSite, settle, startScene } from './support/scene.js';
import { until } from './support/until.js';

const limit = { timeout: 180_000 };

describe('install()', () => {
  const browser = suiteBrowser();

  /** A page of a scene of the test's own, with its replacement of WebSocket. */
  async function open(t, script) {
    const scene = await startScene(t);
    const page = await browser.page(t);
    await openSite(page, scene);
    await page.evaluate(script);
    return { scene, page };
  }

  /** Lets the page's existing code play. */
  async function playing(page, game, url) {
    await page.evaluate(
      (where) => import('/existing.js').then(({ connect }) => Object.assign(window, { player: connect(where) })),
      url,
    );
    const player = new RemotePlayer(page);
    await player.until('the page has its open', ({ count }) => count.open);
    const seat = game.seats[0];
    seat.start(7);
    await player.do('player.start(7)');
    return { player, seat };
  }

  test('existing code plays through cuts unchanged', limit, async (t) => {
    const { scene, page } = await open(t, 'install()');
    const { player, seat } = await playing(page, scene.game, `ws://${scene.relay.host}/existing`);
    const { session } = await player.report();
    for (let i = 1; i <= 4; i++) {
      await flows(player, seat);
      if (i % 2) scene.relay.reset();
      else await scene.gateway.disconnect(session);
      await player.until('the page is back', ({ count }) => count.resume === i);
    }
    await flows(player, seat);
    await settle(player, seat);
    assert.deepEqual(await page.evaluate('player.handlers'), { open: 1 }, 'calls of onopen, onerror and onclose');
    assert.equal(scene.game.seats.length, 1, 'connections that the game server ever had');
  });

  test('what is made is instanceof WebSocket, with its constants and its members', limit, async (t) => {
    const { scene, page } = await open(t, 'window.Native = WebSocket; install()');
    const { player } = await playing(page, scene.game, `ws://${scene.relay.host}/`);
    const seen = await page.evaluate(() => {
      const { player: own, Native } = /** @type {any} */ (window);
      const { socket } = own;
      const constants = (it) => [it.CONNECTING, it.OPEN, it.CLOSING, it.CLOSED];
      const members = Object.getOwnPropertyNames(Native.prototype).filter((name) => !(name in socket));
      return {
        is: [
          socket instanceof WebSocket,
          socket instanceof EventTarget,
          new Native('ws://127.0.0.1:1') instanceof WebSocket,
        ],
        tag: String(socket),
        constants: [constants(WebSocket), constants(socket)],
        state: socket.readyState === WebSocket.OPEN,
        missing: members,
        native: socket instanceof Native,
      };
    });
    assert.deepEqual(seen, {
      is: [true, true, true],
      tag: '[object WebSocket]',
      constants: [
        [0, 1, 2, 3],
        [0, 1, 2, 3],
      ],
      state: true,
      missing: [],
      native: false,
    });
    await player.do('player.stop()');
  });

  test("an address that does not match gets the browser's own WebSocket, which a cut ends", limit, async (t) => {
    const { scene, page } = await open(t, 'window.Native = WebSocket; install({ match: /\\/only-here/ })');
    const { player } = await playing(page, scene.game, `ws://${scene.relay.host}/`);
    assert.equal(await player.do('player.socket.constructor === Native'), true);
    assert.equal(scene.game.seats[0].offered, '', 'nothing is offered');
    scene.relay.reset();
    const { events } = await player.until('the cut ends it', ({ count }) => count.close);
    assert.equal(events.at(-1).code, 1006);
  });

  test('install() twice is as once, and what it returns puts everything back', limit, async (t) => {
    const { page } = await open(t, 'window.Native = WebSocket');
    const script =
      'const back = install(); const one = WebSocket; install(); const same = one === WebSocket && one !== Native; back(); [same, WebSocket === Native]';
    assert.deepEqual(await page.evaluate(`(() => { ${script.replace(/\[same/, 'return [same')} })()`), [true, true]);
  });

  test('with hideOffline, code that listens later does not hear that the browser is offline', limit, async (t) => {
    const { page } = await open(
      t,
      "window.heard = []; install({ hideOffline: true }); for (const type of ['offline', 'online']) addEventListener(type, () => heard.push(type))",
    );
    await page.context().setOffline(true);
    await page.waitForFunction('!navigator.onLine');
    await page.context().setOffline(false);
    await until('online is heard', () => page.evaluate("heard.includes('online')"));
    assert.deepEqual(await page.evaluate('heard'), ['online']);
  });

  test('towards a server without Reseat existing code works as it did', limit, async (t) => {
    const { page } = await open(t, 'install()');
    const game = await startGame(t, { handleProtocols: () => false });
    await page.evaluate(
      (where) => import('/existing.js').then(({ connect }) => Object.assign(window, { player: connect(where) })),
      game.url,
    );
    const player = new RemotePlayer(page);
    await player.until('the page has its open', ({ count }) => count.open);
    const seat = /** @type {import('./support/game.js').Seat} */ (game.seats.at(-1));
    seat.start(7);
    await player.do('player.start(7)');
    await flows(player, seat);
    await settle(player, seat);
  });
});
