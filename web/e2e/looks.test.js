// How the demo looks: pictures go to out/, and what can be measured is.
import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { suiteBrowser } from './support/browser.js';
import { DemoPage } from './support/demo.js';
import { startGateway } from './support/gateway.js';

const OUT = fileURLToPath(new URL('out/', import.meta.url));

const limit = { timeout: 90_000 };

/** @type {{width: number, height: number, colorScheme: 'light' | 'dark'}[]} */
const LOOKS = [
  { width: 1280, height: 800, colorScheme: 'light' },
  { width: 1280, height: 800, colorScheme: 'dark' },
  { width: 768, height: 1024, colorScheme: 'light' },
  { width: 390, height: 844, colorScheme: 'light' },
  { width: 390, height: 844, colorScheme: 'dark' },
];

describe('the demo\'s page', () => {
  const browser = suiteBrowser();

  for (const { width, height, colorScheme } of LOOKS) {
    test(`fits a ${colorScheme} window ${width} wide, before, in and after a cut`, limit, async (t) => {
      await mkdir(OUT, { recursive: true });
      const { host } = await startGateway(t, '--demo');
      const page = await browser.page(t, { viewport: { width, height }, colorScheme });
      const demo = await DemoPage.open(page, host);
      const look = async (/** @type {string} */ when) => {
        await page.screenshot({ path: `${OUT}demo-${width}-${colorScheme}-${when}.png`, fullPage: true });
        assert.deepEqual(await overflowing(page), [], when);
        const [left, right] = await page.evaluate(() => ['reseat', 'plain'].map((id) => document.querySelector(`#${id} > header`)?.getBoundingClientRect().height));
        assert.equal(left, right, `the heads of both panels are as high, ${when}`);
      };
      await demo.score(2);
      await look('playing');
      await demo.part('cut-silence').click();
      await demo.until('both are silent', ({ proof, plain }) => proof.state === 'silent' && plain.state === 'silent');
      await look('silent');
      await demo.until('both are back', ({ proof, plain }) => proof.resumes === 1 && plain.seatsLost === 1 && plain.phase === 'playing');
      await demo.says('plain-seats-lost', /^1$/);
      await look('back');
      await demo.part('letters').click();
      await demo.until('the network is gone', ({ proof, plain }) => proof.phase === 'away' && plain.phase === 'lost');
      await look('airplane');
      await demo.until('what was sent meanwhile has come', ({ proof, plain }) => proof.letters.came === 200 && plain.phase === 'playing');
      await look('letters');
      assert.deepEqual(demo.complaints, []);
    });
  }
});

/** What reaches beyond the window's right edge, the page itself included. */
function overflowing(page) {
  return page.evaluate(() => {
    const beyond = [...document.querySelectorAll('main *, header *')].filter((element) => {
      const { right, left, width } = element.getBoundingClientRect();
      return width > 0 && (right > innerWidth + 1 || left < -1) && !element.closest('.hidden');
    });
    const names = beyond.map((element) => `${element.tagName} ${element.textContent?.trim().slice(0, 40)}`);
    return document.documentElement.scrollWidth > innerWidth ? [...names, 'the page'] : names;
  });
}
