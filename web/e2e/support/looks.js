import { readFile } from 'node:fs/promises';

const AXE = readFile(new URL('../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

/** What axe finds wrong in a part of a page: roles, names, contrast, focus. @param {import('playwright-core').Page} page @param {string} [part] a selector */
export async function violations(page, part) {
  await page.evaluate(await AXE);
  return page.evaluate(async (selector) => {
    const found = await /** @type {any} */ (window).axe.run(selector ?? document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
    });
    return found.violations.map(
      (/** @type {any} */ v) => `${v.id}: ${v.nodes.map((/** @type {any} */ n) => n.target.join(' ')).slice(0, 3)}`,
    );
  }, part);
}

/** What reaches beyond the window's right edge, the page itself included. @param {import('playwright-core').Page} page */
export function overflowing(page) {
  return page.evaluate(() => {
    const beyond = [...document.querySelectorAll('main *, header *')].filter((element) => {
      const { right, left, width } = element.getBoundingClientRect();
      return width > 0 && (right > innerWidth + 1 || left < -1) && !element.closest('.hidden');
    });
    const names = beyond.map((element) => `${element.tagName} ${element.textContent?.trim().slice(0, 40)}`);
    return document.documentElement.scrollWidth > innerWidth ? [...names, 'the page'] : names;
  });
}
