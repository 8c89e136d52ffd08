// Takes the README's picture of the demo: after one cut of each kind, and messages
// while away.
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { launch } from './support/browser.js';
import { DemoPage } from './support/demo.js';
import { startGateway } from './support/gateway.js';

const PICTURE = fileURLToPath(new URL('../../docs/demo.png', import.meta.url));
const MAX_BYTES = 280_000;

/** What to undo at the end, newest first. @type {(() => Promise<void>)[]} */
const ends = [];
const t = { after: (/** @type {() => Promise<void>} */ end) => void ends.unshift(end) };

/** Cuts both sides and waits until both play again. */
async function cut(demo, how, times) {
  await demo.part(`cut-${how}`).click();
  const back = ({ proof, plain }) =>
    proof.resumes === times &&
    plain.seatsLost >= Math.min(times, 2) &&
    [proof, plain].every(({ state }) => state === 'playing');
  await demo.until(`both play again after cut ${times}`, back, 30_000);
}

try {
  const browser = await launch();
  t.after(() => browser.close());
  const { host } = await startGateway(t, '--demo');
  const context = await browser.newContext({
    viewport: { width: 1280, height: 1290 },
    deviceScaleFactor: 1,
    colorScheme: 'light',
  });
  const demo = await DemoPage.open(await context.newPage(), host);
  for (const [i, how] of ['close', 'reset', 'silence'].entries()) {
    await demo.score(4);
    await cut(demo, how, i + 1);
  }
  await demo.part('letters').click();
  await demo.until(
    'what was sent meanwhile has come',
    ({ proof, plain }) => proof.letters.came === 200 && plain.phase === 'playing',
    30_000,
  );
  await demo.score(4);
  await demo.page.mouse.move(640, 1120); // away from the button
  await demo.page.evaluate(() => /** @type {HTMLElement | null} */ (document.activeElement)?.blur());
  await demo.page.waitForFunction(() => document.getAnimations().every(({ playState }) => playState !== 'running'));
  const { length } = await demo.page.screenshot({ path: PICTURE });
  assert.ok(length <= MAX_BYTES, `the picture has ${length} bytes, more than ${MAX_BYTES}`);
  console.log(`${PICTURE}: ${length} bytes`);
} finally {
  for (const end of ends) await end();
}
