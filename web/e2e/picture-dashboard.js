// Takes the pictures of docs/dashboard.md: 10,000 made-up sessions, and a real one
// of the demo that was cut.
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { launch } from './support/browser.js';
import { Dashboard, fake, refusalsOf } from './support/dashboard.js';
import { DemoPage } from './support/demo.js';
import { startGateway } from './support/gateway.js';

const MAX_BYTES = 230_000;

/** What to undo at the end, newest first. @type {(() => Promise<void>)[]} */
const ends = [];
const t = { after: (/** @type {() => Promise<void>} */ end) => void ends.unshift(end) };

/** @param {import('playwright-core').Page} page @param {string} name */
async function take(page, name) {
  const path = fileURLToPath(new URL(`../../docs/${name}`, import.meta.url));
  const { length } = await page.screenshot({ path });
  assert.ok(length <= MAX_BYTES, `${name} has ${length} bytes, more than ${MAX_BYTES}`);
  console.log(`${path}: ${length} bytes`);
}

try {
  const browser = await launch();
  t.after(() => browser.close());
  const gateway = await startGateway(t, '--demo');
  const demo = await DemoPage.open(await browser.newPage(), gateway.host);
  const wide = await browser.newPage({
    viewport: { width: 1440, height: 900 },
    deviceScaleFactor: 1,
    colorScheme: 'light',
  });
  await fake(wide, 10_000, { refusals: refusalsOf(60) });
  const board = await Dashboard.open(wide, gateway.admin);
  await board.says('feed-seen', /so far/);
  for (const how of ['reset', 'close', 'silence']) {
    const { resumes } = (await demo.report()).proof;
    await demo.part(`cut-${how}`).click();
    await demo.until('both are back', ({ proof, plain }) => proof.resumes > resumes && plain.state === 'playing');
  }
  await board.says('feed', /resumed/);
  await take(wide, 'dashboard.png');
  const { session } = (await demo.report()).proof;
  const small = await browser.newPage({
    viewport: { width: 390, height: 844 },
    deviceScaleFactor: 1,
    colorScheme: 'dark',
  });
  const phone = await Dashboard.open(small, gateway.admin, `#/session/${session}`);
  await phone.says('past', /Resumed/);
  await take(small, 'dashboard-phone.png');
} finally {
  for (const end of ends) await end();
}
