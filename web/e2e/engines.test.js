// The client's own tests, and the demo, in every engine. What takes longer is in engines/: make test-engines.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { wantKept } from './support/demo.js';
import { inEngines } from './support/engines.js';
import { startGateway } from './support/gateway.js';
import { unitTests } from './support/unit.js';
import { until } from './support/until.js';

inEngines("the client's own tests", unitTests);

inEngines(
  'the demo',
  (engine) => {
    test('cuts of each kind cost nothing', { timeout: 300_000 }, async (t) => {
      const { host } = await startGateway(t, '--demo');
      const page = await engine.page(t);
      await page.goto(`http://${host}/`);
      await page.waitForFunction('window.demo');
      let report = { proof: /** @type {any} */ (null), plain: /** @type {any} */ (null) };
      /** @param {string} claim @param {(proof: any, plain: any) => unknown} so */
      const wait = async (claim, so) => {
        const look = async () => {
          report = await page.evaluate('({ proof: demo.proof(), plain: demo.plain() })');
          return report.proof.phase === 'playing' && so(report.proof, report.plain);
        };
        await until(claim, look, { also: () => report });
        return report.proof;
      };
      for (const [i, how] of ['close', 'reset', 'silence'].entries()) {
        const before = await wait('both have scored', (proof, plain) => Math.min(proof.score, plain.score) > 0);
        await page.evaluate(`document.querySelector('[data-testid="cut-${how}"]').click()`);
        const back = (/** @type {any} */ { resumes, received, up }) =>
          resumes === i + 1 && received > before.received && up.received > before.up.received;
        wantKept(before, await wait(`back after ${how}`, back));
      }
      assert.equal(report.proof.cuts, 3);
    });
  },
  ['Firefox', 'WebKit'], // demo.test.js has more of it, in Chromium
);
