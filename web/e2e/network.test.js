// A page of another origin plays through a network that fails. What the client's own tests hold (web/test, in every
// engine by engines.test.js) is not repeated: here are the real sockets of a browser.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ordinaryBrowser, suiteBrowser } from './support/browser.js';
import { flows, play, settle, startScene } from './support/scene.js';
import { until } from './support/until.js';

const limit = { timeout: 180_000 };

/** Longer than a link that is torn is let pass. */
const LONG = 300_000;

/** From a cut, where there is another path, to the resume: 5 s, but on a machine with much else to do. */
const BACK_MS = 30_000;

/** A page that plays, with messages going both ways. */
async function playing(page, scene, { every = 7, ...spec } = {}) {
  const game = await play(page, scene, spec);
  game.seat.start(every);
  await game.player.do(`player.start(${every})`);
  await flows(game.player, game.seat);
  return { ...game, ...(await game.player.report()) };
}

/** Does what cuts the connection, and waits until the page is back. */
async function survive({ player, seat }, cut) {
  const before = await player.resumes();
  await cut();
  await player.until('the page is back', ({ count, detached }) => count.resume > before && !detached);
  await flows(player, seat);
}

/** What holds however often the connection was cut. */
async function wantOneSession(scene, { player, seat, session }) {
  const { page } = await settle(player, seat);
  assert.equal(page.session, session, 'the session');
  assert.equal(scene.game.seats.length, 1, 'connections that the game server ever had');
  return page;
}

describe('a page whose network fails', { concurrency: 4 }, () => {
  const browser = suiteBrowser();

  for (const way of /** @type {const} */ (['up', 'down'])) {
    test(`a reset in the middle of a frame on its way ${way} loses, doubles and tears nothing`, limit, async (t) => {
      const scene = await startScene(t);
      const game = await playing(await browser.page(t), scene);
      const { player, seat } = game;
      await settle(player, seat); // so that the next frame is the long one
      await survive(game, async () => {
        scene.relay.tear(way, 20_000);
        if (way === 'up') await player.do(`player.send(${LONG})`);
        else seat.send(LONG);
        await until('the link is torn', () => scene.relay.torn === 1);
        seat.start(7);
        await player.do('player.start(7)');
      });
      const page = await wantOneSession(scene, game);
      assert.deepEqual(Object.keys(page.came).sort(), ['ArrayBuffer', 'string'], 'binaryType arraybuffer');
    });
  }

  test('a page that is refused keeps what it sends and tries until it is let in', limit, async (t) => {
    const scene = await startScene(t);
    const game = await playing(await browser.page(t), scene);
    await survive(game, async () => {
      const accept = scene.relay.refuse();
      await game.player.until('attempts have failed, and what was sent since waits', ({ count, bufferedAmount }) => {
        return count.detach === 2 && bufferedAmount > 100_000; // from here on it asks over HTTP
      });
      assert.equal((await scene.gateway.session(game.session)).state, 'detached');
      await accept();
    });
    const page = await wantOneSession(scene, game);
    assert.deepEqual([page.bufferedAmount, page.count.resume], [0, 1], 'nothing waits');
  });

  test('cuts of all kinds, one upon the other, lose, double and reorder nothing', limit, async (t) => {
    const scene = await startScene(t, '--heartbeat', '300ms');
    const game = await playing(await browser.page(t), scene, { binaryType: 'blob' });
    const { player, session } = game;
    const cuts = [
      () => scene.relay.reset(),
      () => scene.relay.tear('up', 5_000),
      () => scene.relay.tear('down', 5_000),
      () => scene.relay.stall(),
      async () => assert.match(String(await scene.gateway.disconnect(session)), /^(204|409)$/),
      () => scene.relay.tear('down', 1), // in the 101 of the way back, if that is under way
      () => scene.relay.reset(),
    ];
    for (let i = 0; i < 14; i++) {
      await cuts[(i * 5) % cuts.length]();
      // Every third cut falls upon a page that is back, the others upon one that is on its way.
      const { received } = await player.report();
      if (i % 3 === 2) await player.until('messages come again', (report) => report.received > received);
    }
    const page = await wantOneSession(scene, game);
    assert.deepEqual(Object.keys(page.came).sort(), ['Blob', 'string'], 'binaryType blob');
    const { received, written, sent } = await scene.gateway.session(session);
    assert.deepEqual([received, written, sent], [page.sent, page.sent, page.received], 'as the gateway has counted');
  });

  for (const [claim, ways, flags] of /** @type {[string, ('up' | 'down')[], string[]][]} */ ([
    ['falls silent both ways', ['up', 'down'], []],
    ['brings nothing down any more, though all goes up', ['down'], []],
    ['takes nothing up any more, which the gateway misses', ['up'], ['--heartbeat', '2s']],
  ]))
    test(`a line that ${claim} is replaced where another path is there`, limit, async (t) => {
      const scene = await startScene(t, ...flags);
      const game = await playing(await browser.page(t), scene, { every: 50 });
      const cut = await game.player.do('performance.now()');
      await survive(game, () => scene.relay.hold(ways));
      const page = await wantOneSession(scene, game);
      const resume = page.events.find(({ type }) => type === 'resume');
      assert.ok(resume.at - cut < BACK_MS, `back ${resume.at - cut} ms after the cut`);
      assert.deepEqual([page.count.resume, page.count.detach ?? 0, scene.relay.handshakes], [1, 1, 2]);
    });

  test(
    'a line that speaks before the new one is answered was a false alarm: the page stays on it',
    limit,
    async (t) => {
      // The gateway has more patience than its clients, however busy the machine is.
      const scene = await startScene(t, '--answer-timeout', '60s', '--heartbeat', '60s');
      const game = await playing(await browser.page(t), scene, { every: 50 });
      const old = scene.relay.hold();
      const fresh = scene.relay.holdNew({ probesPass: true });
      await game.player.until('it is suspected', ({ detached }) => detached);
      await until('the new one is under way', () => scene.relay.handshakes > 1);
      old();
      const report = await game.player.until('it is not', ({ detached }) => !detached);
      const { replay, lost, ms } = report.events.findLast(({ type }) => type === 'resume');
      assert.deepEqual({ replay, lost }, { replay: 0, lost: 0 });
      assert.ok(ms > 3_900, `${ms} ms`);
      await until('the page has given the attempt up', () => scene.relay.waiting === 0);
      fresh();
      await flows(game.player, game.seat);
      const page = await wantOneSession(scene, game);
      assert.equal(page.count.open, 1);
      assert.equal(page.count.detach, page.count.resume + page.events.filter(({ attempt }) => attempt > 1).length);
    },
  );

  test('a page that is busy for 4 s, less than answer_ms, raises no alarm', limit, async (t) => {
    const scene = await startScene(t);
    const game = await playing(await browser.page(t), scene, { every: 50 });
    await game.player.do('{ const end = performance.now() + 4_000; while (performance.now() < end); }');
    await game.player.until('it has read what waited', ({ received }) => received > game.seat.sent - 5);
    await flows(game.player, game.seat);
    const page = await wantOneSession(scene, game);
    assert.deepEqual([page.count.detach, scene.relay.handshakes], [undefined, 1]);
  });

  test('a large message on its slow way up raises no alarm', limit, async (t) => {
    const scene = await startScene(t, '--max-message', '8MiB');
    const game = await playing(await browser.page(t), scene, { every: 50 });
    await settle(game.player, game.seat); // nothing comes but what the gateway says by itself
    const { received } = game.seat.report();
    scene.relay.rate.up = 400_000;
    await game.player.do('player.send(4_000_000)');
    await until('it has come', () => game.seat.report().received > received);
    scene.relay.rate.up = Infinity;
    const page = await wantOneSession(scene, game);
    assert.equal(page.count.detach, undefined);
  });
});

describe('a page that the browser freezes, as it does with tabs in the background', () => {
  const browser = ordinaryBrowser();

  test('is back after its thaw, with all that came meanwhile', limit, async (t) => {
    const scene = await startScene(t, '--heartbeat', '500ms', '--grace', '60s');
    const page = await browser.page(t);
    const game = await playing(page, scene);
    const { player, seat, session } = game;
    const devtools = await page.context().newCDPSession(page);
    const enter = (/** @type {'frozen' | 'active'} */ state) => devtools.send('Page.setWebLifecycleState', { state });
    await devtools.send('Emulation.setFocusEmulationEnabled', { enabled: false });
    await enter('frozen');
    await until('the gateway has missed it', async () => (await scene.gateway.session(session)).state === 'detached');
    const { sent } = seat.report();
    const { received } = await player.report();
    await until('the game has gone on for long', () => seat.report().sent > sent + 100);
    assert.equal((await player.report()).received, received, 'the page stands still');
    await enter('active');
    const { events } = await player.until('the page is back', ({ count }) => count.resume === 1);
    assert.ok(events.findLast(({ type }) => type === 'resume').replay >= 100, 'replayed');
    await wantOneSession(scene, game);
  });
});
