// How the dashboard looks: pictures go to out/, and what can be measured is.
import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { suiteBrowser } from './support/browser.js';
import { Dashboard, fake, NO_UPGRADE, refusalsOf } from './support/dashboard.js';
import { startGateway } from './support/gateway.js';
import { DemoPage } from './support/demo.js';

const OUT = fileURLToPath(new URL('out/', import.meta.url));

const limit = { timeout: 300_000 };

/** @type {{width: number, height: number, colorScheme: 'light' | 'dark'}[]} */
const LOOKS = [
  { width: 1440, height: 900, colorScheme: 'light' },
  { width: 1440, height: 900, colorScheme: 'dark' },
  { width: 390, height: 844, colorScheme: 'light' },
  { width: 390, height: 844, colorScheme: 'dark' },
];

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

describe("the dashboard's page", () => {
  const browser = suiteBrowser();

  for (const { width, height, colorScheme } of LOOKS) {
    test(`is accessible and fits a ${colorScheme} window ${width} wide`, limit, async (t) => {
      await mkdir(OUT, { recursive: true });
      const gateway = await startGateway(t, '--demo');
      const demo = await DemoPage.open(await browser.page(t), gateway.host);
      const page = await browser.page(t, { viewport: { width, height }, colorScheme });
      const look = async (/** @type {string} */ what) => {
        await page.screenshot({ path: `${OUT}dashboard-${width}-${colorScheme}-${what}.png` });
        await board.fits();
        await board.accessible(what);
      };
      const answers = await fake(page, 10_000, { refusals: refusalsOf(60), draining: colorScheme === 'dark' });
      const board = await Dashboard.open(page, gateway.admin);
      await board.says('matching', /^10,000$/);
      await board.says('feed-seen', /so far/); // the stream is open
      await demo.part('cut-reset').click();
      await demo.until('it is back', ({ proof }) => proof.resumes === 1);
      await board.says('feed', /resumed/);
      await look('crowd');
      answers.sessions.slice(0, 20).forEach((session, i) =>
        Object.assign(session, {
          node: `n${1 + (i % 3)}`,
          durable: i % 4 === 1 ? 'exposed' : 'covered',
          moved: ['', '', 'failover', 'handoff'][i % 4],
        }),
      );
      answers.durable = { covered: 9_997, exposed: 3 };
      await board.says('exposed', /3 durable sessions\s+exposed/);
      await look('durable');
      answers.durable = { covered: 0, exposed: 0 };
      for (const upgrade of UPGRADES) {
        answers.upgrade = { ...NO_UPGRADE, from: 'v0.9.0', to: 'v0.10.0', ...upgrade };
        await board.says('upgrade', upgrade.says);
        await look(`upgrade-${upgrade.state}`);
      }
      await board.part('drain').click();
      await look('drain');
      await page.keyboard.press('Escape');
      await board.part('refused').locator('li').last().scrollIntoViewIfNeeded();
      await board.part('routes').scrollIntoViewIfNeeded();
      await look('below');
      const { session } = (await demo.report()).proof;
      await page.evaluate((id) => void (location.hash = `#/session/${id}`), session);
      await board.says('past', /Resumed/);
      await look('session');
      await board.part('end').click();
      await board.part('reason').waitFor();
      await look('question');
      board.clean();
    });
  }

  test('cuts no column off, however wide the window is', limit, async (t) => {
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

  test("shows bars, and the row that keys have reached, in colours of the operating system's", limit, async (t) => {
    await mkdir(OUT, { recursive: true });
    const gateway = await startGateway(t, '--demo');
    const page = await browser.page(t, { viewport: { width: 1440, height: 900 }, forcedColors: 'active' });
    await fake(page, 1000);
    const board = await Dashboard.open(page, gateway.admin);
    await board.says('matching', /^1,000$/);
    await board.part('grid').focus();
    await page.keyboard.press('ArrowDown');
    await page.screenshot({ path: `${OUT}dashboard-1440-forced-colors.png` });
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
  });

  test('with a token to be asked for is accessible', limit, async (t) => {
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
    await page.screenshot({ path: `${OUT}dashboard-390-token.png` });
    await board.fits();
    await board.accessible('token');
  });
});

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
