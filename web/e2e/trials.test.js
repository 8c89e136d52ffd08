// What else the demo lets one try: airplane mode, messages while away, a reload,
// a slow line.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bursts, FULL } from '../demo/timeline.js';
import { suiteBrowser } from './support/browser.js';
import { DemoPage } from './support/demo.js';
import { startGateway } from './support/gateway.js';
import { until } from './support/until.js';

const limit = { timeout: 300_000 };

describe('in the demo', () => {
  const browser = suiteBrowser();

  /** @param {{after: (run: () => Promise<void>) => void}} t */
  async function open(t) {
    const gateway = await startGateway(t, '--demo');
    const demo = await DemoPage.open(await browser.page(t, { viewport: { width: 1280, height: 900 } }), gateway.host);
    return { demo, gateway };
  }

  /** Nothing missed, doubled or out of order, either way. */
  function wantWhole({ missed, twice, outOfOrder, up }) {
    assert.deepEqual([missed, twice, outOfOrder, up.missed, up.twice, up.outOfOrder], [0, 0, 0, 0, 0, 0]);
  }

  test('airplane mode takes the network from both, until it is over', limit, async (t) => {
    const { demo, gateway } = await open(t);
    const before = await demo.score(1);
    await demo.part('airplane').click();
    await demo.until('both are gone', ({ proof, plain }) => proof.phase === 'away' && plain.phase === 'lost');
    assert.equal(await demo.part('airplane').getAttribute('aria-pressed'), 'true');
    await demo.until(
      'the gateway has found out by itself',
      async () => (await gateway.session(before.proof.session)).state === 'detached',
    );
    await demo.part('airplane').click();
    const after = await demo.until(
      'both play',
      ({ proof, plain }) => proof.phase === 'playing' && plain.phase === 'playing' && proof.resumes === 1,
    );
    assert.deepEqual(
      [after.proof.session, after.proof.seat, after.proof.cuts],
      [before.proof.session, before.proof.seat, 1],
    );
    assert.notEqual(after.plain.session, before.plain.session);
    wantWhole(after.proof);
    await demo.says('story', /ReseatSocket no messages for \d+\.\d s, back, \d+ replayed/);
    await demo.says(
      'story',
      /WebSocket no messages for \d+\.\d s, back as a new player: seat \d+ and its \d+ points? lost/,
    );
    assert.deepEqual([demo.complaints, demo.strangers], [[], []]);
  });

  test('200 messages that are sent while both are away come to one of them, in order', limit, async (t) => {
    const { demo } = await open(t);
    await demo.part('letters').click();
    const { proof, plain } = await demo.until(
      'all have come',
      ({ proof, plain }) => proof.letters.came === 200 && plain.phase === 'playing' && plain.seatsLost === 1,
    );
    assert.deepEqual(proof.letters, { of: 200, came: 200, inOrder: true });
    assert.ok(proof.lastReplay >= 200, `${proof.lastReplay} messages replayed`);
    assert.equal(plain.letters.came, 0);
    wantWhole(proof);
    await demo.says('reseat-letters', /^200 of 200 messages, in order$/);
    await demo.says('plain-letters', /^0 of 200 messages: gone with the seat$/);
    // The timeline shows a column when its 200 ms are over, which may be after the last letter.
    // A replay may fall into several columns; what of it does not fill a lane is in no burst.
    await until(
      'the timeline shows the replay as caught up',
      async () => {
        const tracks = /** @type {import('../demo/timeline.js').Column[][]} */ (
          await demo.page.evaluate('demo.tracks()')
        );
        return bursts(tracks[0]).reduce((sum, { got }) => sum + got, 0) >= proof.lastReplay - 2 * FULL;
      },
      { ms: 2000, also: () => demo.page.evaluate('demo.tracks()') },
    );
    assert.deepEqual(demo.complaints, []);
  });

  test('a restart of the game server costs one player a pause, and the other the seat', limit, async (t) => {
    const { demo } = await open(t);
    const before = await demo.score(1);
    await demo.part('restart').click();
    await demo.says('trial-notice', /^The game server restarts/);
    await demo.says('reseat-status', /The game server is away.* dials it again; seat \d+ and your inputs are kept/);
    await demo.says('reseat-status', /^The game server was restarted\. Still in seat \d+ with \d+ points?\.$/);
    const after = await demo.until(
      'both play',
      ({ proof, plain }) =>
        proof.phase === 'playing' && proof.state === 'playing' && plain.phase === 'playing' && plain.seatsLost === 1,
    );
    assert.deepEqual(
      [after.proof.session, after.proof.seat, after.proof.cuts, after.proof.seatsLost],
      [before.proof.session, before.proof.seat, 0, 0],
    );
    assert.ok(after.proof.score >= before.proof.score, `${after.proof.score} of ${before.proof.score} points`);
    assert.notEqual(after.plain.seat, before.plain.seat);
    assert.deepEqual([after.proof.missed, after.proof.twice, after.proof.outOfOrder], [0, 0, 0]);
    assert.deepEqual([after.proof.up.twice, after.proof.up.outOfOrder], [0, 0]);
    await demo.part('restart').click();
    await demo.says('trial-notice', /just now|restarts/);
  });

  test('a reload with storage keeps seat, points and numbers, and the page says so', limit, async (t) => {
    const { demo, gateway } = await open(t);
    let { proof, plain } = await demo.score(1);
    for (let reloads = 0; reloads < 2; reloads++) {
      await demo.part('reload-stored').click();
      await demo.says(
        'trial-notice',
        new RegExp(
          `^Reloaded with storage: still in the session, with seat ${proof.seat} and its \\d+ points?. Replayed: \\d+ messages?, missed: 0. WebSocket lost seat ${plain.seat} `,
        ),
      );
      const after = await demo.until(
        'both play, and what was sent has come',
        (now) => now.proof.up.received > proof.up.received + 20 && now.plain.phase === 'playing',
      );
      assert.deepEqual([after.proof.session, after.proof.seat], [proof.session, proof.seat]);
      assert.ok(after.proof.score >= proof.score, `${after.proof.score} points after ${proof.score}`);
      assert.ok(after.proof.received > proof.received, 'the numbers go on');
      assert.equal(after.proof.seatsLost, 0);
      wantWhole(after.proof);
      assert.notEqual(after.plain.session, plain.session);
      await demo.says('reseat-status', /^The page was reloaded\. Still in seat \d+ with \d+ points?\.$/);
      await demo.says('story', /ReseatSocket page reloaded, back after [\d.]+ m?s, \d+ replayed/);
      ({ proof, plain } = after);
    }
    assert.equal((await gateway.session(proof.session)).state, 'attached');
    assert.deepEqual(demo.complaints, []);
  });

  test('a reload with storage keeps the seat without a network, too', limit, async (t) => {
    const { demo } = await open(t);
    const { proof } = await demo.score(1);
    await demo.part('airplane').click();
    await demo.until('it is gone', (now) => now.proof.phase === 'away');
    await demo.part('reload-stored').click();
    await demo.says('trial-notice', /^Reloaded with storage: still in the session/);
    const after = await demo.until('it is back', (now) => now.proof.session === proof.session && now.proof.seat > 0);
    assert.equal(after.proof.seat, proof.seat);
    wantWhole(after.proof);
  });

  test('a reload with storage into a session that is over begins a new one, and the page says so', limit, async (t) => {
    const gateway = await startGateway(t, '--demo', '--grace', '0');
    const demo = await DemoPage.open(await browser.page(t), gateway.host);
    const { proof } = await demo.score(1);
    await demo.part('reload-stored').click();
    await demo.says(
      'trial-notice',
      new RegExp(`but the session was over: seat ${proof.seat} and its \\d+ points? are gone`),
    );
    const after = await demo.until('it plays', (now) => now.proof.phase === 'playing');
    assert.notEqual(after.proof.session, proof.session);
    wantWhole(after.proof);
  });

  test('a reload without storage is a goodbye and a new session, and the page says so', limit, async (t) => {
    const { demo, gateway } = await open(t);
    const { proof } = await demo.score(1);
    await demo.part('reload').click();
    await demo.says(
      'trial-notice',
      new RegExp(`^Reloaded without storage: .* seat ${proof.seat} and its \\d+ points? at once`),
    );
    await demo.until(
      'the new page plays',
      (now) => now.proof.phase === 'playing' && now.proof.session !== proof.session,
    );
    const old = await gateway.session(proof.session);
    assert.deepEqual([old.state, old.reason], ['ended', 'bye']);
  });

  test('a reload on a slow line is a goodbye as well', limit, async (t) => {
    const { demo, gateway } = await open(t);
    await demo.page.getByTestId('delay').fill('600');
    await demo.page.getByTestId('jitter').fill('300');
    const { proof } = await demo.score(1);
    await demo.part('reload').click();
    await demo.says('trial-notice', /^Reloaded without storage: the old page said goodbye/);
    await until('the old session has ended', async () => (await gateway.session(proof.session)).reason === 'bye', {
      ms: 5000,
    });
    assert.deepEqual(demo.complaints, []);
  });

  test('a reload without a network is no goodbye, and the page says so', limit, async (t) => {
    const { demo, gateway } = await open(t);
    const { proof } = await demo.score(1);
    await demo.part('airplane').click();
    await demo.until('it is gone', (now) => now.proof.phase === 'away');
    await demo.part('reload').click();
    await demo.says('trial-notice', new RegExp(`could not say goodbye: seat ${proof.seat} and its \\d+ points? stay`));
    assert.notEqual((await gateway.session(proof.session)).state, 'ended');
  });

  test('a slow and uneven line changes nothing but the time', limit, async (t) => {
    const { demo } = await open(t);
    await demo.page.getByTestId('delay').fill('200');
    await demo.page.getByTestId('jitter').fill('100');
    assert.equal(await demo.page.locator('#delay-says').textContent(), '200 ms');
    for (const [i, how] of ['reset', 'close', 'reset'].entries()) {
      await demo.part(`cut-${how}`).click();
      await demo.until('it is back', ({ proof }) => proof.resumes === i + 1 && proof.phase === 'playing');
    }
    const { proof } = await demo.until(
      'what was sent has come',
      ({ proof }) => proof.received > 100 && proof.up.received > 20,
    );
    // hello takes half a round trip at the least; what else there is runs beside it
    assert.ok(proof.lastResumeMs >= 100, `back after ${proof.lastResumeMs} ms, on a line of 200 there and back`);
    assert.deepEqual([proof.seatsLost, proof.resumes], [0, 3]);
    wantWhole(proof);
  });
});
