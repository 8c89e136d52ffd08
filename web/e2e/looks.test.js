// How the pages look: pictures go to out/, and what can be measured is.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { suiteBrowser } from './support/browser.js';
import { openCluster } from './support/cluster.js';
import { Dashboard, fake, NO_UPGRADE, refusalsOf } from './support/dashboard.js';
import { DemoPage } from './support/demo.js';
import { startGateway } from './support/gateway.js';
import { overflowing, violations } from './support/looks.js';

/** Chromium warns of attempts that the client gave up while there was no network. */
const GIVEN_UP = /closed before the connection is established/;

const OUT = fileURLToPath(new URL('out/', import.meta.url));

const limit = { timeout: 300_000 };

/** @typedef {{viewport: {width: number, height: number}, colorScheme: 'light' | 'dark'}} Look */

/** @type {Look[]} */
const LOOKS = [
  { viewport: { width: 1280, height: 800 }, colorScheme: 'light' },
  { viewport: { width: 390, height: 844 }, colorScheme: 'dark' },
];

/** @type {Look} */
const TABLET = { viewport: { width: 768, height: 1024 }, colorScheme: 'light' };

/**
 * A test in windows of several kinds.
 * @param {string} claim
 * @param {Look[]} looks
 * @param {(t: any, look: {options: Look, picture: (page: any, name: string, fullPage?: boolean) => Promise<any>}) => Promise<void>} body
 */
function inLooks(claim, looks, body) {
  for (const options of looks) {
    const { viewport, colorScheme } = options;
    const picture = (page, name, fullPage = false) =>
      page.screenshot({ path: `${OUT}${name}-${viewport.width}-${colorScheme}.png`, fullPage });
    test(`${claim}: in a ${colorScheme} window ${viewport.width} wide`, limit, (t) => body(t, { options, picture }));
  }
}

const UPGRADES = [
  { state: 'running', says: /^Upgrading to v0\.10\.0/ },
  {
    state: 'ok',
    sessions: { moved: 9_800, pumped: 197, kept: 3 },
    freeze_ms: 312.4,
    says: /9,997 sessions handed over in 312 ms/,
  },
  {
    state: 'aborted',
    error: 'offer: 40120 descriptors are in use, and this process may open 20000: raise the limit of open files',
    says: /aborted: offer: 40120 descriptors/,
  },
];

describe('looks', { concurrency: 2 }, () => {
  const browser = suiteBrowser();

  inLooks('the demo fits, before, in and after a cut', [...LOOKS, TABLET], async (t, look) => {
    const { host } = await startGateway(t, '--demo');
    const page = await browser.page(t, look.options);
    const demo = await DemoPage.open(page, host);
    const see = async (/** @type {string} */ when) => {
      await look.picture(page, `demo-${when}`, true);
      assert.deepEqual(await overflowing(page), [], when);
      const [left, right] = await page.evaluate(() =>
        ['reseat', 'plain'].map((id) => document.querySelector(`#${id} > header`)?.getBoundingClientRect().height),
      );
      assert.equal(left, right, `the heads of both panels are as high, ${when}`);
      assert.deepEqual(await covered(page), [], `status lines that something covers, ${when}`);
    };
    await demo.score(2);
    await see('playing');
    await demo.part('cut-silence').click();
    await demo.until('both are silent', ({ proof, plain }) => proof.state === 'silent' && plain.state === 'silent');
    await see('silent');
    await demo.until('both are back', ({ proof, plain }) => proof.resumes === 1 && plain.state === 'playing');
    await see('back');
    await demo.part('cut-reset').click();
    await demo.until(
      'both are back again',
      ({ proof, plain }) => proof.resumes === 2 && plain.seatsLost > 0 && plain.phase === 'playing',
    );
    await see('reset');
    await demo.part('letters').click();
    await demo.until('the network is gone', ({ proof, plain }) => proof.phase === 'away' && plain.phase === 'lost');
    await see('airplane');
    await demo.until(
      'what was sent meanwhile has come',
      ({ proof, plain }) => proof.letters.came === 200 && plain.phase === 'playing',
    );
    await see('letters');
    await demo.part('reload-stored').click();
    await demo.says('trial-notice', /^Reloaded with storage: still in the session/);
    await demo.until('both play', ({ proof, plain }) => proof.phase === 'playing' && plain.phase === 'playing');
    await see('reloaded');
    demo.clean(GIVEN_UP);
  });

  inLooks('the demo in a cluster fits, before and after it has moved', LOOKS, async (t, look) => {
    const scene = await openCluster(t, browser, look.options);
    const { cluster, demo, page, list } = scene;
    const see = async (/** @type {string} */ when) => {
      await page.mouse.move(0, 0);
      await page.waitForFunction(() => document.getAnimations().every(({ playState }) => playState !== 'running'));
      await look.picture(page, `cluster-${when}`, true);
      assert.deepEqual(await overflowing(page), [], when);
      assert.deepEqual(await violations(page, '#nodes, .where'), [], when);
    };
    await see('home');
    await list.filter({ hasText: 'Carry on at n2' }).focus();
    await page.keyboard.press('Enter');
    await demo.until('it is back', ({ proof, plain }) => proof.resumes === 1 && plain.state === 'playing', 30_000);
    await demo.says('reseat-where', /through n2\.$/);
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'At n2', 'the focus stays');
    await see('away');
    cluster.kill('n3');
    await list.filter({ hasText: 'n3: has ended' }).waitFor();
    await see('gone');
  });

  inLooks('the dashboard is accessible, and fits', LOOKS, async (t, look) => {
    const gateway = await startGateway(t, '--demo');
    const demo = await DemoPage.open(await browser.page(t), gateway.host);
    const page = await browser.page(t, look.options);
    const see = async (/** @type {string} */ what) => {
      await look.picture(page, `dashboard-${what}`);
      await board.fits();
      await board.accessible(what);
    };
    const answers = await fake(page, 10_000, {
      refusals: refusalsOf(60),
      draining: look.options.colorScheme === 'dark',
    });
    const board = await Dashboard.open(page, gateway.admin);
    await board.says('matching', /^10,000$/);
    await board.says('feed-seen', /so far/); // the stream is open
    await demo.part('cut-reset').click();
    await demo.until('it is back', ({ proof }) => proof.resumes === 1);
    await board.says('feed', /resumed/);
    await see('crowd');
    answers.sessions.slice(0, 20).forEach((session, i) =>
      Object.assign(session, {
        node: `n${1 + (i % 3)}`,
        durable: i % 4 === 1 ? 'exposed' : 'covered',
        moved: ['', '', 'failover', 'handoff'][i % 4],
      }),
    );
    answers.durable = { covered: 9_997, exposed: 3 };
    await board.says('exposed', /3 durable sessions\s+exposed/);
    await see('durable');
    answers.durable = { covered: 0, exposed: 0 };
    for (const upgrade of UPGRADES) {
      answers.upgrade = { ...NO_UPGRADE, from: 'v0.9.0', to: 'v0.10.0', ...upgrade };
      await board.says('upgrade', upgrade.says);
      await see(`upgrade-${upgrade.state}`);
    }
    await board.part('drain').click();
    await see('drain');
    await page.keyboard.press('Escape');
    await board.part('refused').locator('li').last().scrollIntoViewIfNeeded();
    await board.part('routes').scrollIntoViewIfNeeded();
    await see('below');
    const { session } = (await demo.report()).proof;
    await page.evaluate((id) => void (location.hash = `#/session/${id}`), session);
    await board.says('past', /Resumed/);
    await see('session');
    await board.part('end').click();
    await board.part('reason').waitFor();
    await see('question');
    board.clean();
  });

  test('the dashboard cuts no column off, however wide the window is', limit, async (t) => {
    const gateway = await startGateway(t, '--demo');
    const page = await browser.page(t, { viewport: { width: 1760, height: 900 } });
    await fake(page, 1000);
    const board = await Dashboard.open(page, gateway.admin);
    await board.says('matching', /^1,000$/);
    assert.equal((await columns(page)).seen.length, 9, 'all are seen where there is room');
    for (const width of [721, 768, 900, 1024, 1180, 1181, 1280, 1366, 1440, 1920]) {
      await page.setViewportSize({ width, height: 900 });
      const { cut, seen } = await columns(page);
      assert.deepEqual(cut, [], `${width} wide`);
      for (const name of ['Session', 'Player', 'Group', 'State', 'Grace left', 'Buffer'])
        assert.ok(
          seen.some((text) => text.startsWith(name)),
          `${name} is seen in a window ${width} wide`,
        );
      if (width >= 1280) assert.equal(seen.length, 9, `all are seen in a window ${width} wide`);
      await board.fits();
    }
  });

  test(
    "the dashboard shows bars, and the row that keys have reached, in colours of the operating system's",
    limit,
    async (t) => {
      const gateway = await startGateway(t, '--demo');
      const page = await browser.page(t, { viewport: { width: 1440, height: 900 }, forcedColors: 'active' });
      await fake(page, 1000);
      const board = await Dashboard.open(page, gateway.admin);
      await board.says('matching', /^1,000$/);
      await board.part('grid').focus();
      await page.keyboard.press('ArrowDown');
      const { bars, outlines } = await page.evaluate(() => {
        const style = (/** @type {Element} */ element) => getComputedStyle(element);
        return {
          bars: [...document.querySelectorAll('.row .bar span')].map(
            (part) =>
              style(part).backgroundColor !== style(/** @type {Element} */ (part.closest('.row'))).backgroundColor,
          ),
          outlines: [...document.querySelectorAll('.row')]
            .map((row) => style(row).outlineStyle)
            .filter((line) => line !== 'none'),
        };
      });
      assert.ok(bars.length > 0 && bars.every(Boolean), 'a bar is seen against its row');
      assert.deepEqual(outlines, ['solid'], 'one row stands out');
    },
  );

  test('the dashboard that asks for a token is accessible', limit, async (t) => {
    const gateway = await startGateway(t, '--demo');
    const page = await browser.page(t, { viewport: { width: 390, height: 844 } });
    await page.route('**/api/v1/**', (route) =>
      route.fulfill({
        status: 401,
        contentType: 'application/problem+json',
        body: '{"title":"Unauthorized","status":401,"detail":"want a token"}',
      }),
    );
    const board = await Dashboard.open(page, gateway.admin);
    await board.part('token').waitFor();
    await board.fits();
    await board.accessible('token');
  });
});

/** Status lines over which something else lies, wherever the page is scrolled to. */
function covered(page) {
  return page.evaluate(() => {
    const { scrollY: before } = window;
    const found = [...document.querySelectorAll('.panel .status')].filter((status) =>
      /** @type {const} */ (['start', 'center', 'end']).some((block) => {
        status.scrollIntoView({ block });
        const { left, top, height } = status.getBoundingClientRect();
        return document.elementFromPoint(left + 30, top + height / 2) !== status;
      }),
    );
    scrollTo(0, before);
    return found.map(({ textContent }) => textContent);
  });
}

/**
 * The columns whose heads are seen, and what of the table is cut off or lies over its neighbour.
 * @param {import('playwright-core').Page} page
 */
function columns(page) {
  return page.evaluate(() => {
    /** @type {string[]} */
    const cut = [];
    const cellsOf = (/** @type {Element} */ row) =>
      [...row.children].filter((cell) => cell.getBoundingClientRect().width > 0);
    const look = (/** @type {Element} */ row) => {
      const cells = cellsOf(row);
      cells.forEach((cell, i) => {
        const inner = cell.firstElementChild?.getBoundingClientRect() ?? cell.getBoundingClientRect();
        const edge = cells[i + 1]?.getBoundingClientRect().left ?? row.getBoundingClientRect().left + row.clientWidth;
        if (cell.getBoundingClientRect().right > edge + 1 || (row.matches('.head *') && inner.right > edge + 1))
          cut.push(cell.textContent ?? '');
      });
    };
    const head = /** @type {Element} */ (document.querySelector('.head [role="row"]'));
    look(head);
    look(/** @type {Element} */ (document.querySelector('.row:not(.waiting)')));
    return { cut, seen: cellsOf(head).map((cell) => cell.textContent ?? '') };
  });
}
