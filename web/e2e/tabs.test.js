// Pages that are duplicated, reloaded, left and come back to.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ordinaryBrowser, suiteBrowser } from './support/browser.js';
import { flows, join, openSite, play, settle, startScene } from './support/scene.js';
import { until } from './support/until.js';

const limit = { timeout: 180_000 };

/** A bye comes at once; a session that is only detached would live on for the grace period of 30 s. */
const SOON = { ms: 5_000 };

/** The game server learns that the page was left, and the gateway keeps nothing of it. */
async function wantGone(scene, seat) {
  await until('the game server gets the close', () => seat.ended, SOON);
  assert.deepEqual(seat.ended, { code: 1001, reason: '' });
}

describe('tabs', () => {
  const browser = suiteBrowser();

  test('a duplicated tab has a session of its own, and steals none', limit, async (t) => {
    const scene = await startScene(t);
    const context = await browser.context(t);
    const page = await context.newPage();
    const first = await play(page, scene);
    await page.evaluate(() => sessionStorage.setItem('of', 'the first tab'));
    const [popup] = await Promise.all([
      context.waitForEvent('page'),
      page.evaluate(() => void window.open(location.href)),
    ]);
    await popup.waitForFunction('window.ready');
    assert.equal(
      await popup.evaluate(() => sessionStorage.getItem('of')),
      'the first tab',
      'the storage is duplicated too',
    );
    const second = await join(popup, scene);
    const third = await play(await context.newPage(), scene);
    const all = [first, second, third];
    for (const { player, seat } of all) {
      seat.start(7);
      await player.do('player.start(7)');
    }
    for (const { player, seat } of all) await flows(player, seat);
    const reports = [];
    for (const { player, seat } of all) reports.push((await settle(player, seat)).page);
    assert.equal(new Set(reports.map(({ session }) => session)).size, 3, 'three sessions');
    assert.deepEqual(
      reports.map(({ count }) => count.detach),
      [undefined, undefined, undefined],
      'none was cut',
    );
    assert.equal(scene.game.seats.length, 3);
  });

  test('a reload ends the session after what was sent before it, and begins another', limit, async (t) => {
    const scene = await startScene(t);
    const page = await browser.page(t);
    const { player, seat } = await play(page, scene);
    const { session } = await player.report();
    const loaded = page.waitForEvent('load');
    await player.do('player.send(10_000); player.send(10_000); location.reload()'); // text and bytes: a Blob is read later
    await loaded;
    await wantGone(scene, seat);
    assert.deepEqual([seat.report().received, seat.report().faults], [2, []]);
    await page.waitForFunction('window.ready');
    const again = await join(page, scene);
    assert.notEqual((await again.player.report()).session, session);
    await until('one session is left', async () => (await scene.gateway.sessions()).length === 1, SOON);
  });

  test('ten reloads leave no ghost', limit, async (t) => {
    const scene = await startScene(t);
    const page = await browser.page(t);
    for (let i = 0; i < 10; i++) await play(page, scene);
    await until('one session is left', async () => (await scene.gateway.sessions()).length === 1, SOON);
    await until('the others have ended', () => scene.game.seats.filter(({ ended }) => ended).length === 9, SOON);
    assert.deepEqual([...new Set(scene.game.seats.slice(0, 9).map(({ ended }) => ended?.code))], [1001]);
  });

  test('a page that is left for another one says so', limit, async (t) => {
    const scene = await startScene(t);
    const page = await browser.page(t);
    const { seat } = await play(page, scene);
    await page.goto(`http://${scene.gateway.host}/reseat.js`);
    await wantGone(scene, seat);
  });

  test('a tab that is closed says so', limit, async (t) => {
    const scene = await startScene(t);
    const page = await browser.page(t);
    const { seat } = await play(page, scene);
    await page.close({ runBeforeUnload: true });
    await wantGone(scene, seat);
  });

  test('a frame that is removed from its page says so', limit, async (t) => {
    const scene = await startScene(t);
    const page = await browser.page(t);
    await openSite(page, scene);
    await page.evaluate(() =>
      document.body.append(Object.assign(document.createElement('iframe'), { src: location.href })),
    );
    const frame = await until('the frame is there', () => page.frames()[1]);
    await frame.waitForFunction('window.ready');
    const { seat } = await join(frame, scene);
    await page.evaluate(() => document.querySelector('iframe')?.remove());
    await wantGone(scene, seat);
  });
});

describe('the back/forward cache', () => {
  const browser = ordinaryBrowser();

  test('a page restored from it is back in its session, with all that came meanwhile', limit, async (t) => {
    const scene = await startScene(t, '--heartbeat', '500ms');
    const page = await browser.page(t);
    const { player, seat } = await play(page, scene);
    const { session } = await player.report();
    seat.start(7);
    await player.do(
      "player.start(7); window.shown = []; addEventListener('pageshow', ({ persisted }) => shown.push(persisted))",
    );
    for (let i = 1; i <= 2; i++) {
      await flows(player, seat);
      await page.goto(`${scene.site.origin}/existing.js`);
      await until('the session waits', async () => (await scene.gateway.session(session)).state === 'detached');
      const { sent } = seat.report();
      await until('the game goes on', () => seat.report().sent > sent + 50);
      await page.goBack({ waitUntil: 'commit' });
      await page.waitForFunction('window.player');
      await player.until('the page is back', ({ count }) => count.resume >= i);
      assert.equal(await page.evaluate('shown.length'), i, 'Chromium has kept the page');
    }
    assert.deepEqual(await page.evaluate('shown'), [true, true]);
    await flows(player, seat);
    const report = await settle(player, seat);
    assert.equal(report.page.session, session);
    assert.equal(scene.game.seats.length, 1, 'connections that the game server ever had');
  });
});
