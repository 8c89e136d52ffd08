// How the dashboard looks: pictures go to out/, and what can be measured is.
import { mkdir } from 'node:fs/promises';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { suiteBrowser } from './support/browser.js';
import { Dashboard, fake } from './support/dashboard.js';
import { startGateway } from './support/gateway.js';
import { DemoPage } from './support/demo.js';

const OUT = fileURLToPath(new URL('out/', import.meta.url));

const limit = { timeout: 90_000 };

/** @type {{width: number, height: number, colorScheme: 'light' | 'dark'}[]} */
const LOOKS = [
  { width: 1440, height: 900, colorScheme: 'light' },
  { width: 1440, height: 900, colorScheme: 'dark' },
  { width: 390, height: 844, colorScheme: 'light' },
  { width: 390, height: 844, colorScheme: 'dark' },
];

describe('the dashboard\'s page', () => {
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
      await fake(page, 10_000);
      const board = await Dashboard.open(page, gateway.admin);
      await board.says('matching', /^10,000$/);
      await board.says('feed-seen', /so far/); // the stream is open
      await demo.part('cut-reset').click();
      await demo.until('it is back', ({ proof }) => proof.resumes === 1);
      await board.says('feed', /resumed/);
      await look('crowd');
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

  test('with a token to be asked for is accessible', limit, async (t) => {
    const gateway = await startGateway(t, '--demo');
    const page = await browser.page(t, { viewport: { width: 390, height: 844 } });
    await page.route('**/api/v1/**', (route) => route.fulfill({ status: 401, contentType: 'application/problem+json', body: '{"title":"Unauthorized","status":401,"detail":"want a token"}' }));
    const board = await Dashboard.open(page, gateway.admin);
    await board.part('token').waitFor();
    await page.screenshot({ path: `${OUT}dashboard-390-token.png` });
    await board.fits();
    await board.accessible('token');
  });
});
