// --plain-resume cookie, with a page that knows nothing of Reseat.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { suiteBrowser } from './support/browser.js';
import { startScene } from './support/scene.js';
import { until } from './support/until.js';

const limit = { timeout: 180_000 };

describe('an ordinary page, kept by a cookie', { concurrency: 2 }, () => {
  const browser = suiteBrowser();

  /** The page's report. @returns {Promise<any>} */
  const report = (page) => page.evaluate('visitor.report()');

  /** Waits until the page's report is so, and returns it. */
  const awaits = (page, claim, so) => {
    let last;
    return until(claim, async () => so((last = await report(page))) && last, { also: () => last });
  };

  /** Opens the page and lets it play. */
  async function visit(page, scene) {
    await page.goto(`${scene.site.origin}/ordinary`);
    await play(page, scene);
  }

  async function play(page, scene) {
    await page.waitForFunction('window.ready');
    await page.evaluate((url) => {
      const { Visitor } = /** @type {any} */ (window);
      Object.assign(window, { visitor: new Visitor(url) });
    }, `ws://${scene.relay.host}/ordinary`);
    await awaits(page, 'the page has its connection', ({ opened }) => opened === 1);
  }

  /** Waits until more of the game has come. */
  async function flows(page) {
    const { newest } = await report(page);
    await awaits(page, 'messages come', (now) => now.newest >= newest + 20);
  }

  /** Ways to lose a connection; the page's own code finds out by itself. */
  const cuts = {
    'a reset': (scene) => scene.relay.reset(),
    'a reset in the middle of a message': (scene) => scene.relay.tear('down', 30_000),
    'the control API': async (scene) => {
      const [{ id }] = await scene.gateway.sessions();
      await scene.gateway.disconnect(id);
    },
  };

  test('comes back into its session through cuts of three kinds', limit, async (t) => {
    const scene = await startScene(t, '--plain-resume', 'cookie');
    const page = await browser.page(t);
    await visit(page, scene);
    scene.game.seats[0].start(7);
    await flows(page);
    const [{ id }] = await scene.gateway.sessions();
    for (let i = 1; i <= 6; i++) {
      await Object.values(cuts)[i % 3](scene);
      await awaits(page, 'the page is back', ({ opened }) => opened === i + 1);
      await flows(page);
    }
    const [seat] = scene.game.seats;
    seat.stop();
    await awaits(page, 'all has come', ({ newest }) => newest === seat.sent);
    const end = await report(page);
    assert.deepEqual(end.faults, [], 'every number came, in order');
    assert.deepEqual([scene.game.seats.length, seat.ended], [1, null], "the game server's one connection lives");
    assert.deepEqual(
      (await scene.gateway.sessions()).map((s) => s.id),
      [id],
      'the one session',
    );
  });

  test('gets again exactly what no Pong of its has covered', limit, async (t) => {
    const scene = await startScene(t, '--plain-resume', 'cookie');
    const page = await browser.page(t);
    await visit(page, scene);
    const [seat] = scene.game.seats;
    seat.start(7);
    const [{ id }] = await scene.gateway.sessions();
    await until('a Pong has told how far the page has come', async () => (await scene.gateway.session(id)).acked > 0);
    const allow = scene.relay.refuse();
    await until('the session is detached', async () => (await scene.gateway.session(id)).state === 'detached');
    const { acked } = await scene.gateway.session(id);
    // The gateway hears of the reset at once; the browser first hands over what had come before it.
    const before = await awaits(page, 'the page has lost its connection', ({ closed }) => closed > 0);
    await allow();
    await awaits(page, 'the page is back', ({ opened }) => opened === 2);
    await flows(page);
    const after = await report(page);
    assert.equal(after.firsts[1], acked + 1, 'the first number after the cut');
    assert.equal(after.repeats, before.newest - acked, 'numbers that came twice');
    assert.deepEqual(after.faults, []);
  });

  test('in a second tab has a session of its own', limit, async (t) => {
    const scene = await startScene(t, '--plain-resume', 'cookie');
    const context = await browser.context(t);
    const [first, second] = [await context.newPage(), await context.newPage()];
    await visit(first, scene);
    await visit(second, scene);
    await until('two connections at the game server', () => scene.game.seats.length === 2);
    for (const seat of scene.game.seats) seat.start(7);
    await flows(first);
    await flows(second);
    assert.deepEqual([(await report(first)).faults, (await report(second)).faults], [[], []]);
  });

  test('of another site has no cookie, and so is not brought back', limit, async (t) => {
    const scene = await startScene(t, '--plain-resume', 'cookie', '--origin', '*');
    const page = await browser.page(t);
    await page.goto(`${scene.site.origin.replace('127.0.0.1', 'localhost')}/ordinary`);
    await play(page, scene);
    scene.relay.reset();
    await awaits(page, 'the page has another connection', ({ opened }) => opened === 2);
    assert.equal(scene.game.seats.length, 2);
  });
});
