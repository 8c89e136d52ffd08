import assert from 'node:assert/strict';
import { test } from 'node:test';
import { wantKept } from './demo.js';
import { startGateway } from './gateway.js';
import { Relay } from './relay.js';
import { until } from './until.js';

/** How the page loses its connection. @type {[string, (on: {relay: any, detached: () => Promise<void>}) => any][]} */
const CUTS = [
  ['a reset', ({ relay }) => relay.reset()],
  ['a line that falls silent', ({ relay }) => relay.stall()],
  [
    'a reset, and connections that are refused for a while',
    async ({ relay, detached }) => {
      const accept = relay.refuse();
      await detached();
      await accept();
    },
  ],
];

/** The demo in an engine, reloaded and cut each way. @param {import('./engines.js').Engine} engine */
export function demoTests(engine) {
  test('keeps its seat through every cut, with no message lost and none twice', { timeout: 300_000 }, async (t) => {
    const gateway = await startGateway(t, '--demo');
    const relay = await Relay.start(t, gateway.host);
    const page = await engine.page(t);
    let report = { proof: /** @type {any} */ (null), plain: /** @type {any} */ (null) };
    /** Waits until both sides play, and it is so. @param {string} claim @param {(proof: any, plain: any) => unknown} so */
    const playing = async (claim, so) => {
      const look = async () => {
        report = await page.evaluate('({ proof: demo.proof(), plain: demo.plain() })');
        return report.proof.phase === 'playing' && so(report.proof, report.plain);
      };
      await until(claim, () => look().catch(() => false), { also: () => report }); // a page that is loading has no demo
      return report;
    };
    await page.goto(`http://${relay.host}/`);
    const { proof: first } = await playing('it plays', ({ received }) => received > 10);
    const detached = () =>
      until('it is detached', async () => (await gateway.session(first.session)).state === 'detached');
    /** Does it, and waits until the page goes on over another connection. @param {number} resumes what it then has counted */
    const survives = async (/** @type {string} */ how, /** @type {() => any} */ run, resumes) => {
      const { proof: before } = report;
      const { handshakes } = relay;
      await run();
      await until(`${how}: the page connects again`, () => relay.handshakes > handshakes);
      const { proof } = await playing(
        `${how}: messages come and go`,
        (now) =>
          now.resumes === resumes && now.received > before.received + 10 && now.up.received > before.up.received + 3,
      );
      wantKept(before, proof);
    };
    const reload = `void document.querySelector('[data-testid="reload-stored"]').click()`;
    await survives('a reload', () => page.evaluate(reload), 0);
    for (const [i, [how, cut]] of CUTS.entries()) await survives(how, () => cut({ relay, detached }), i + 1);
    assert.equal(report.proof.session, first.session);
    const ends = (await gateway.history(first.session)).filter((type) => /ended|overflow/.test(type));
    assert.deepEqual(ends, [], 'the session has not ended');
    const { plain } = await playing('the plain player sits again', (_, { phase }) => phase === 'playing');
    assert.ok(plain.seatsLost > 0, 'a plain WebSocket has lost its seat');
  });
}
