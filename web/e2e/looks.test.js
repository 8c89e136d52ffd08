// How the demo looks: pictures go to out/, and what can be measured is.
import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { suiteBrowser } from './support/browser.js';
import { DemoPage } from './support/demo.js';
import { startGateway } from './support/gateway.js';
import { overflowing } from './support/looks.js';

const OUT = fileURLToPath(new URL('out/', import.meta.url));

const limit = { timeout: 300_000 };

/** @type {{width: number, height: number, colorScheme: 'light' | 'dark'}[]} */
const LOOKS = [
  { width: 1280, height: 800, colorScheme: 'light' },
  { width: 1280, height: 800, colorScheme: 'dark' },
  { width: 768, height: 1024, colorScheme: 'light' },
  { width: 390, height: 844, colorScheme: 'light' },
  { width: 390, height: 844, colorScheme: 'dark' },
];

describe("the demo's page", () => {
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
        const [left, right] = await page.evaluate(() =>
          ['reseat', 'plain'].map((id) => document.querySelector(`#${id} > header`)?.getBoundingClientRect().height),
        );
        assert.equal(left, right, `the heads of both panels are as high, ${when}`);
        assert.deepEqual(await covered(page), [], `status lines that something covers, ${when}`);
      };
      for (const [name, contrast] of await legend(page))
        assert.ok(contrast >= 3, `"${name}" of the legend is seen: contrast ${contrast}`); // WCAG 1.4.11
      await demo.score(2);
      await look('playing');
      await demo.part('cut-silence').click();
      await demo.until('both are silent', ({ proof, plain }) => proof.state === 'silent' && plain.state === 'silent');
      await look('silent');
      await demo.until('both are back', ({ proof, plain }) => proof.resumes === 1 && plain.state === 'playing');
      await look('back');
      await demo.part('cut-reset').click();
      await demo.until(
        'both are back again',
        ({ proof, plain }) => proof.resumes === 2 && plain.seatsLost > 0 && plain.phase === 'playing',
      );
      await look('reset');
      await demo.part('letters').click();
      await demo.until('the network is gone', ({ proof, plain }) => proof.phase === 'away' && plain.phase === 'lost');
      await look('airplane');
      await demo.until(
        'what was sent meanwhile has come',
        ({ proof, plain }) => proof.letters.came === 200 && plain.phase === 'playing',
      );
      await look('letters');
      await demo.part('reload-stored').click();
      await demo.says('trial-notice', /^Reloaded with storage: still in the session/);
      await demo.until('both play', ({ proof, plain }) => proof.phase === 'playing' && plain.phase === 'playing');
      await look('reloaded');
      assert.deepEqual(demo.complaints, []);
    });
  }
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

/** The swatches of the timeline's legend, each with the contrast of its edge against the card. @returns {Promise<[string, number][]>} */
function legend(page) {
  return page.evaluate(() => {
    const light = (/** @type {string} */ colour) => {
      const [r, g, b] = (colour.match(/[\d.]+/g) ?? []).map((part) =>
        Number(part) <= 10.31475 ? Number(part) / 255 / 12.92 : ((Number(part) / 255 + 0.055) / 1.055) ** 2.4,
      );
      return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
    };
    const card = light(getComputedStyle(/** @type {Element} */ (document.querySelector('.timeline'))).backgroundColor);
    return [...document.querySelectorAll('.key span')].map((span) => {
      const { borderTopColor, borderTopWidth } = getComputedStyle(span, '::before');
      const edge = parseFloat(borderTopWidth) > 0 ? light(borderTopColor) : card;
      return /** @type {[string, number]} */ ([span.textContent ?? '', Math.max(edge, card) / Math.min(edge, card)]);
    });
  });
}
