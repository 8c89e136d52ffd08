// Takes the pictures of docs/: the demo, after one cut of each kind and messages while away; the dashboard, with 10,000
// made-up sessions and a real one of that demo.
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { launch } from './support/browser.js';
import { Dashboard, fake, refusalsOf } from './support/dashboard.js';
import { DemoPage } from './support/demo.js';
import { startGateway } from './support/gateway.js';

const MAX_BYTES = 280_000;

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

/** Cuts both sides and waits until both play again. */
async function cut(demo, how, times) {
  await demo.part(`cut-${how}`).click();
  const back = ({ proof, plain }) =>
    proof.resumes === times &&
    plain.seatsLost >= Math.min(times, 2) &&
    [proof, plain].every(({ state }) => state === 'playing');
  await demo.until(`both play again after cut ${times}`, back);
}

try {
  const browser = await launch();
  t.after(() => browser.close());
  const gateway = await startGateway(t, '--demo');
  const window = (width, height, colorScheme) =>
    browser.newPage({ viewport: { width, height }, deviceScaleFactor: 1, colorScheme });
  const demo = await DemoPage.open(await window(1280, 1290, 'light'), gateway.host);
  const wide = await window(1440, 900, 'light');
  await fake(wide, 10_000, { refusals: refusalsOf(60) });
  const board = await Dashboard.open(wide, gateway.admin);
  await board.says('feed-seen', /so far/);
  for (const [i, how] of ['close', 'reset', 'silence'].entries()) {
    await demo.score(4);
    await cut(demo, how, i + 1);
  }
  await board.says('feed', /resumed/);
  await take(wide, 'dashboard.png');
  const { session } = (await demo.report()).proof;
  const phone = await Dashboard.open(await window(390, 844, 'dark'), gateway.admin, `#/session/${session}`);
  await phone.says('past', /Resumed/);
  await take(phone.page, 'dashboard-phone.png');
  await demo.part('letters').click();
  await demo.until(
    'what was sent meanwhile has come',
    ({ proof, plain }) => proof.letters.came === 200 && plain.phase === 'playing',
  );
  await demo.score(4);
  await demo.page.mouse.move(640, 1120); // away from the button
  await demo.page.evaluate(() => /** @type {HTMLElement | null} */ (document.activeElement)?.blur());
  await demo.page.waitForFunction(() => document.getAnimations().every(({ playState }) => playState !== 'running'));
  await take(demo.page, 'demo.png');
} finally {
  for (const end of ends) await end();
}
