// A page of another origin plays through a network that fails in every way.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { suiteBrowser } from './support/browser.js';
import { flows, play, settle, startScene } from './support/scene.js';
import { until } from './support/until.js';

const limit = { timeout: 180_000 };

/** Longer than a link that is torn is let pass. */
const LONG = 300_000;

/** A page that plays, with messages going both ways. */
async function playing(page, scene, wish) {
  const game = await play(page, scene, wish);
  game.seat.start(7);
  await game.player.do('player.start(7)');
  await flows(game.player, game.seat);
  return game;
}

/** Does what cuts the connection, and waits until the page is back. */
async function survive(player, seat, cut) {
  const before = await player.resumes();
  await cut();
  await player.until('the page is back', ({ count, detached }) => count.resume > before && !detached);
  await flows(player, seat);
}

/** What holds however often the connection was cut. */
async function wantOneSession(scene, { player, seat }, session) {
  const { page } = await settle(player, seat);
  assert.equal(page.session, session, 'the session');
  assert.equal(scene.game.seats.length, 1, 'connections that the game server ever had');
  return page;
}

describe('a page whose network fails', () => {
  const browser = suiteBrowser();

  test('cuts by the control API lose, double and reorder nothing', limit, async (t) => {
    const scene = await startScene(t);
    const { player, seat } = await playing(await browser.page(t), scene, { binaryType: 'blob' });
    const { session } = await player.report();
    for (let i = 0; i < 10; i++) {
      await survive(player, seat, async () => assert.equal(await scene.gateway.disconnect(session), 204));
    }
    const page = await wantOneSession(scene, { player, seat }, session);
    assert.equal(page.count.resume, 10);
    assert.deepEqual(Object.keys(page.came).sort(), ['Blob', 'string'], 'binaryType blob');
    const { received, written, sent } = await scene.gateway.session(session);
    assert.deepEqual([received, written, sent], [page.sent, page.sent, page.received], 'as the gateway has counted');
  });

  for (const way of /** @type {const} */ (['up', 'down'])) {
    test(`a reset in the middle of a frame on its way ${way} loses, doubles and tears nothing`, limit, async (t) => {
      const scene = await startScene(t);
      const { player, seat } = await playing(await browser.page(t), scene, { binaryType: 'arraybuffer' });
      const { session } = await player.report();
      for (let i = 0; i < 3; i++) {
        await settle(player, seat); // so that the next frame is the long one
        await survive(player, seat, async () => {
          scene.relay.tear(way, 20_000);
          if (way === 'up') await player.do(`player.send(${LONG})`);
          else seat.send(LONG);
          await until('the link is torn', () => scene.relay.torn === i + 1);
          seat.start(7);
          await player.do('player.start(7)');
        });
      }
      const page = await wantOneSession(scene, { player, seat }, session);
      assert.deepEqual(Object.keys(page.came).sort(), ['ArrayBuffer', 'string'], 'binaryType arraybuffer');
    });
  }

  test('a link that falls silent is given up, and the session goes on over another', limit, async (t) => {
    const scene = await startScene(t, '--heartbeat', '500ms');
    const { player, seat } = await playing(await browser.page(t), scene);
    const { session } = await player.report();
    for (let i = 0; i < 2; i++) await survive(player, seat, () => scene.relay.stall());
    await wantOneSession(scene, { player, seat }, session);
  });

  test('a page that is refused keeps what it sends and tries until it is let in', limit, async (t) => {
    const scene = await startScene(t);
    const { player, seat } = await playing(await browser.page(t), scene);
    const { session } = await player.report();
    await survive(player, seat, async () => {
      const accept = scene.relay.refuse();
      scene.relay.reset();
      await player.until('attempts have failed, and what was sent since waits', ({ count, bufferedAmount }) => {
        return count.detach === 2 && bufferedAmount > 100_000; // from here on it asks over HTTP
      });
      assert.equal((await scene.gateway.session(session)).state, 'detached');
      await accept();
    });
    const page = await wantOneSession(scene, { player, seat }, session);
    assert.equal(page.bufferedAmount, 0, 'nothing waits');
    assert.equal(page.count.resume, 1);
  });

  test('cuts of all kinds, one upon the other, lose, double and reorder nothing', limit, async (t) => {
    const scene = await startScene(t, '--heartbeat', '300ms');
    const { player, seat } = await playing(await browser.page(t), scene, { binaryType: 'blob' });
    const { session } = await player.report();
    const cuts = [
      () => scene.relay.reset(),
      () => scene.relay.tear('up', 5_000),
      () => scene.relay.tear('down', 5_000),
      () => scene.relay.stall(),
      () => scene.gateway.disconnect(session),
      () => scene.relay.tear('down', 1), // in the 101 of the way back, if that is under way
      () => scene.relay.reset(),
    ];
    for (let i = 0; i < 21; i++) {
      await cuts[(i * 5) % cuts.length]();
      // Every third cut falls upon a page that is back, the others upon one that is on its way.
      const { received } = await player.report();
      if (i % 3 === 2) await player.until('messages come again', (report) => report.received > received, 20_000);
    }
    await wantOneSession(scene, { player, seat }, session);
  });

  test('close() while the connection is cut is carried through, after all that was sent', limit, async (t) => {
    const scene = await startScene(t);
    const { player, seat } = await playing(await browser.page(t), scene);
    const accept = scene.relay.refuse();
    scene.relay.reset();
    await player.until('the page is on its way back', ({ detached }) => detached);
    await player.do("player.stop(); for (let i = 0; i < 20; i++) player.send(); player.socket.close(3001, 'enough')");
    await accept();
    const { sent, events } = await player.until('the page has its close', ({ count }) => count.close, 20_000);
    const { code, reason, wasClean } = events.at(-1);
    assert.deepEqual({ code, reason, wasClean }, { code: 3001, reason: 'enough', wasClean: true });
    await until("the game server's connection ends", () => seat.ended);
    assert.deepEqual(seat.ended, { code: 3001, reason: 'enough' });
    assert.deepEqual([seat.report().received, seat.report().faults], [sent, []], 'all came before the end');
  });

  test(
    "the game server's own close comes after what it sent before, though the connection was cut",
    limit,
    async (t) => {
      const scene = await startScene(t);
      const { player, seat } = await playing(await browser.page(t), scene);
      const accept = scene.relay.refuse();
      scene.relay.reset();
      await player.until('the page is on its way back', ({ detached }) => detached);
      for (let i = 0; i < 20; i++) seat.send();
      seat.stop();
      seat.close(4321, 'game over');
      await accept();
      const report = await player.until('the page has its close', ({ count }) => count.close, 20_000);
      const { code, reason, wasClean } = report.events.at(-1);
      assert.deepEqual({ code, reason, wasClean }, { code: 4321, reason: 'game over', wasClean: true });
      assert.deepEqual([report.received, report.faults, report.count.error], [seat.sent, [], undefined]);
    },
  );
});
