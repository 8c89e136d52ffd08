// The demo as a person plays it: keys, clicks, cuts, airplane mode, reloads, and what the page then says.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bursts } from '../dev/timeline.js';
import { suiteBrowser } from './support/browser.js';
import { DemoPage, wantKept } from './support/demo.js';
import { startGateway } from './support/gateway.js';
import { until } from './support/until.js';

const limit = { timeout: 300_000 };

/** How far a player must have walked, in world units. */
const FAR = 40;

/** Each key, with where it leads: to and fro, so that all but the first of an axis have room. */
const WALKS = [
  ['KeyD', 'x', 1],
  ['KeyA', 'x', -1],
  ['ArrowRight', 'x', 1],
  ['ArrowLeft', 'x', -1],
  ['KeyS', 'y', 1],
  ['KeyW', 'y', -1],
  ['ArrowDown', 'y', 1],
  ['ArrowUp', 'y', -1],
];

/** The first of each axis, with the wall that may be in the way. @type {Record<string, number>} */
const FIRST = { KeyD: 1200, KeyS: 675 };

describe('the demo', { concurrency: 3 }, () => {
  const browser = suiteBrowser();

  /** The page of a demo of the test's own. */
  async function open(t, ...flags) {
    const gateway = await startGateway(t, '--demo', ...flags);
    const page = await browser.page(t, { viewport: { width: 1280, height: 900 } });
    return { gateway, demo: await DemoPage.open(page, gateway.host) };
  }

  for (const how of ['close', 'reset'])
    test(
      `a cut by "${how}" costs the plain player the seat and its points, and the other one nothing`,
      limit,
      async (t) => {
        const { demo } = await open(t);
        await demo.score(1);
        await demo.stand();
        const before = await demo.report();
        await demo.part(`cut-${how}`).click();
        const cut = await demo.until(
          'the plain player sits again',
          playing(({ plain }) => plain.seatsLost === 1),
        );
        const after = await demo.until(
          'the other one is back',
          playing(({ proof }) => proof.resumes === 1),
        );
        wantKept(before.proof, after.proof);
        wantLost(before.plain, cut.plain);
        await wantProofOnPage(demo);
        await demo.says('plain-seats-lost', /^1$/);
        await demo.says('reseat-survived', /^1 survived$/);
        demo.clean();
      },
    );

  test(
    'silence costs the ReseatSocket player some seconds, and the plain one as long as it lasts',
    limit,
    async (t) => {
      const { demo, gateway } = await open(t);
      const before = await demo.score(1);
      // Longer than the button's 8 s, which a busy machine may need to notice it.
      await demo.page.evaluate(() => /** @type {any} */ (window).demo.cut('silence', { ms: 14_000 }));
      const silent = await demo.until(
        'both are silent',
        ({ proof, plain }) => proof.state === 'silent' && plain.state === 'silent',
      );
      assert.deepEqual([silent.proof.cuts, silent.plain.cuts], [1, 1]);
      for (const side of ['reseat', 'plain']) await demo.says(`${side}-survived`, /^0 survived$/); // it is not over
      const back = await demo.until(
        'the first one is back',
        ({ proof }) => proof.resumes === 1 && proof.phase === 'playing' && proof.up.received > before.proof.up.received,
      );
      assert.equal(back.plain.state, 'silent', 'the plain one waits');
      wantKept(before.proof, back.proof);
      assert.ok(
        back.proof.lastResumeMs >= 2000 && back.proof.lastReplay > 20,
        `${back.proof.lastResumeMs} ms since the last message, ${back.proof.lastReplay} replayed`,
      );
      await demo.says('story', /ReseatSocket: Back after \d+\.\d s, \d+ replayed/);
      await wantProofOnPage(demo);
      const events = await gateway.history(before.proof.session);
      assert.match(events.at(-1) ?? '', /^session\.(superseded|resumed)$/);
      await wantBandFromLastMessage(demo);
      // The gateway may have closed the plain connection: it pings about twice a minute.
      await demo.until('the plain one plays', ({ plain }) => plain.state === 'playing');
      const after = await demo.report();
      assert.deepEqual([after.proof.resumes, after.proof.drops, after.plain.cuts], [1, 1, 1]);
      demo.clean();
    },
  );

  test('quick clicks cut what there is to cut, each once, and nothing is refused', limit, async (t) => {
    const { demo } = await open(t);
    await demo.page.evaluate(async () => {
      for (let i = 0; i < 30; i++) {
        /** @type {any} */ (document.querySelector('reseat-dev')).shadowRoot
          .querySelector('[data-testid="cut-reset"]')
          .click();
        await new Promise((done) => setTimeout(done, 5));
      }
    });
    const { proof, plain } = await demo.until('both play', (now) =>
      [now.proof, now.plain].every(({ phase, cutOpen }) => phase === 'playing' && !cutOpen),
    );
    assert.equal(await demo.part('cut-notice').textContent(), '');
    assert.deepEqual([proof.cuts, plain.cuts], [proof.drops, plain.drops], 'each cut is one drop');
    assert.ok(proof.cuts > 0 && plain.cuts > 0);
  });

  test('a side that is not chosen is not cut; where none is, the page asks to choose', limit, async (t) => {
    const { demo } = await open(t);
    const before = await demo.report();
    for (const side of ['reseat', 'plain']) await demo.part(`cut-${side}`).uncheck();
    await demo.part('cut-reset').click();
    await demo.says('cut-notice', /^Choose whose connection to cut\.$/);
    await demo.part('cut-reseat').check();
    await demo.says('cut-notice', /^$/);
    await demo.part('cut-reset').click();
    const { plain } = await demo.until('the chosen side is back', ({ proof }) => proof.resumes === 1);
    assert.deepEqual(
      [plain.cuts, plain.seatsLost, plain.seat, plain.session],
      [0, 0, before.plain.seat, before.plain.session],
    );
  });

  test('a player who finds no seat reads that the arena is full', limit, async (t) => {
    const { demo } = await open(t);
    await demo.page.evaluate(async () => {
      const url = new URL('/demo/play', location.href);
      url.protocol = 'ws:';
      const taken = (/** @type {WebSocket} */ socket) =>
        new Promise((done) => {
          socket.onmessage = () => done(true);
          socket.onclose = () => done(false);
        });
      while (await taken(new WebSocket(url, 'arena.v1')));
    });
    const late = new DemoPage(await browser.page(t), new URL(demo.page.url()).host);
    await late.page.goto(demo.page.url());
    for (const side of ['reseat', 'plain']) {
      await late.says(`${side}-status`, /^The arena is full/);
      assert.equal(await late.part(side).locator('[data-part="veil"]').textContent(), 'The arena is full');
    }
    assert.deepEqual(late.complaints, []);
  });

  test('the keys steer both players', limit, async (t) => {
    const { demo } = await open(t);
    await demo.stand();
    for (const [key, axis, sign] of WALKS) {
      const from = await demo.report();
      await demo.page.keyboard.down(key);
      const went = (now, side) => (now[side].at[axis] - from[side].at[axis]) * sign >= FAR;
      const walled = (now, side) => key in FIRST && now[side].at[axis] >= FIRST[key] - 2 * FAR;
      await demo.until(`both went by ${key}`, (now) =>
        ['proof', 'plain'].every((side) => went(now, side) || walled(now, side)),
      );
      await demo.page.keyboard.up(key);
    }
  });

  test('the pointer held in an arena leads the player there', limit, async (t) => {
    const { demo } = await open(t);
    await demo.stand();
    const { at } = (await demo.report()).proof;
    const box = await demo.part('reseat').locator('canvas').boundingBox();
    assert.ok(box, 'the arena is on the page');
    const part = at.x < 600 ? 0.9 : 0.1; // of the arena's width of 1200
    await demo.page.mouse.move(box.x + box.width * part, box.y + box.height / 2);
    await demo.page.mouse.down();
    await demo.until(
      'the player is there',
      ({ proof }) => Math.hypot(proof.at.x - 1200 * part, proof.at.y - 337) < FAR,
    );
    await demo.page.mouse.up();
  });

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
    await demo.says('story', /ReseatSocket: Back after \d+\.\d s, \d+ replayed/);
    await demo.says('story', /WebSocket: A new connection after \d+\.\d s: to the game server this is a new player/);
    demo.clean(GIVEN_UP);
  });

  test('of the states meanwhile the newest alone comes, and the page says how many were skipped', limit, async (t) => {
    const { demo } = await open(t);
    await demo.part('states').click();
    const { proof } = await demo.until(
      'all have come',
      ({ proof, plain }) => proof.letters.came === 200 && plain.phase === 'playing' && plain.seatsLost === 1,
    );
    assert.ok(proof.lastSkipped > 20, `${proof.lastSkipped} states skipped`);
    assert.deepEqual(
      [proof.letters.inOrder, proof.letters.skipped, proof.lost, proof.updatesMissed],
      [true, proof.lastSkipped, 0, 0],
    );
    wantWhole(proof);
    await demo.says('reseat-letters', /^200 of 200 messages, in order; \d+ older states skipped$/);
    await demo.says('story', /ReseatSocket: Back after \d+\.\d s, \d+ replayed, \d+ skipped/);
    demo.clean();
  });

  test('200 messages that are sent while both are away come to one of them, in order', limit, async (t) => {
    const { demo } = await open(t);
    await demo.part('letters').click();
    const { proof, plain } = await demo.until(
      'all have come',
      ({ proof, plain }) => proof.letters.came === 200 && plain.phase === 'playing' && plain.seatsLost === 1,
    );
    assert.deepEqual(proof.letters, { of: 200, came: 200, inOrder: true, skipped: 0 });
    // On a busy machine the page may be back before the last letter is sent: that one comes live.
    assert.ok(proof.lastReplay > 0, `${proof.lastReplay} messages replayed`);
    assert.equal(plain.letters.came, 0);
    wantWhole(proof);
    await demo.says('reseat-letters', /^200 of 200 messages, in order$/);
    await demo.says('plain-letters', /^0 of 200 messages: gone with the seat$/);
    // The timeline shows a column when its 200 ms are over, which may be after the last letter.
    // A replay may fall into several columns; what of it does not fill a lane is in no burst.
    await until(
      'the timeline shows the replay as caught up',
      async () => {
        const tracks = /** @type {import('../dev/timeline.js').Column[][]} */ (
          await demo.page.evaluate('demo.tracks()')
        );
        return bursts(tracks[0], 30).reduce((sum, { got }) => sum + got, 0) >= proof.lastReplay - 60;
      },
      { also: () => demo.page.evaluate('demo.tracks()') },
    );
    demo.clean(GIVEN_UP);
  });

  test('a restart of the game server costs one player a pause, and the other the seat', limit, async (t) => {
    const { demo } = await open(t);
    const before = await demo.score(1);
    await demo.part('cut-restart').click();
    await demo.says('story', /Restart the game server/);
    await demo.says('reseat-status', /The game server is away.* dials it again; seat \d+ and your inputs are kept/);
    await demo.says(
      'reseat-status',
      /^(The game server was restarted|No messages for .*)\. Still in seat \d+ with \d+ points?\.$/,
    );
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
    await demo.part('cut-restart').click();
    await demo.says('cut-notice', /just now|^$/);
  });

  /**
   * A reload: what the page says of it. What comes before it, the flags, and what must hold after it.
   * @typedef {{demo: any, gateway: any, proof: any, plain: any}} Reloaded
   * @type {[claim: string, button: string, says: (seats: {proof: number, plain: number}) => string, after: (it: Reloaded) => any, before?: (demo: any) => any, flags?: string[]][]}
   */
  const RELOADS = [
    [
      'with storage keeps seat, points and numbers',
      'reload-stored',
      ({ proof, plain }) =>
        `^Reloaded with storage: still in the session, with seat ${proof} and its \\d+ points?. Replayed: \\d+ messages?, missed: 0. WebSocket lost seat ${plain} `,
      async ({ demo, gateway, proof, plain }) => {
        const after = await demo.until(
          'both play, and what was sent has come',
          playing((now) => now.proof.up.received > proof.up.received + 20),
        );
        wantKept({ ...proof, score: Math.min(proof.score, after.proof.score) }, after.proof);
        assert.ok(after.proof.score >= proof.score, `${after.proof.score} points after ${proof.score}`);
        assert.notEqual(after.plain.session, plain.session);
        await demo.says('reseat-status', /^The page was reloaded\. Still in seat \d+ with \d+ points?\.$/);
        await demo.says('story', /Back after [\d.]+ m?s, \d+ replayed/);
        assert.equal((await gateway.session(proof.session)).state, 'attached');
      },
    ],
    [
      'with storage into a session that is over begins a new one',
      'reload-stored',
      ({ proof }) => `but the session was over: seat ${proof} and its \\d+ points? are gone`,
      async ({ demo, proof }) => {
        const now = await demo.until('it plays', (it) => it.proof.phase === 'playing');
        assert.notEqual(now.proof.session, proof.session);
        wantWhole(now.proof);
      },
      undefined,
      ['--grace', '0'],
    ],
    [
      'without storage is a goodbye and a new session, on a slow line as well',
      'reload',
      ({ proof }) =>
        `^Reloaded without storage: the old page said goodbye.* seat ${proof} and its \\d+ points? at once`,
      async ({ demo, gateway, proof }) => {
        await demo.until(
          'the new page plays',
          playing((it) => it.proof.session !== proof.session),
        );
        await until('the old session has ended', async () => (await gateway.session(proof.session)).reason === 'bye');
      },
      async (demo) => {
        await demo.part('latency').fill('600');
        await demo.part('jitter').fill('300');
      },
    ],
    [
      'without a network is no goodbye',
      'reload',
      ({ proof }) => `could not say goodbye: seat ${proof} and its \\d+ points? stay`,
      async ({ gateway, proof }) => assert.notEqual((await gateway.session(proof.session)).state, 'ended'),
      airplane,
    ],
  ];
  for (const [claim, button, says, after, before, flags = []] of RELOADS)
    test(`a reload ${claim}, and the page says so`, limit, async (t) => {
      const { demo, gateway } = await open(t, ...flags);
      const { proof, plain } = await demo.score(1);
      await before?.(demo);
      await demo.part(button).click();
      await demo.says('trial-notice', new RegExp(says({ proof: proof.seat, plain: plain.seat })));
      await after(/** @type {any} */ ({ demo, gateway, proof, plain }));
    });

  test('a slow and uneven line changes nothing but the time', limit, async (t) => {
    const { demo } = await open(t);
    await demo.part('latency').fill('200');
    await demo.part('jitter').fill('100');
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

/** Chromium warns of attempts that the client gave up while there was no network. */
const GIVEN_UP = /closed before the connection is established/;

/** Both sides play, and it is so. */
const playing = (so) => (now) => now.proof.phase === 'playing' && now.plain.phase === 'playing' && so(now);

/** Takes the network away. */
async function airplane(demo) {
  await demo.part('airplane').click();
  await demo.until('it is gone', ({ proof }) => proof.phase === 'away');
}

/** Nothing missed, doubled or out of order, either way. */
function wantWhole({ missed, twice, outOfOrder, up }) {
  assert.deepEqual([missed, twice, outOfOrder, up.missed, up.twice, up.outOfOrder], [0, 0, 0, 0, 0, 0]);
}

/** Another session in another seat, and the points are gone. */
function wantLost(before, after) {
  assert.notEqual(after.session, before.session);
  assert.notEqual(after.seat, before.seat);
  assert.equal(after.seatsLost, 1);
  assert.ok(after.pointsLost >= before.score, `${after.pointsLost} points lost, before ${before.score}`);
}

/** The timeline shows the outage of the first side from the column after its last message on. */
async function wantBandFromLastMessage(demo) {
  const tracks = /** @type {import('../dev/timeline.js').Column[][]} */ (await demo.page.evaluate('demo.tracks()'));
  const first = tracks[0].findIndex(({ state }) => state === 'silent');
  assert.ok(first > 0, 'there is a band');
  assert.ok(tracks[0][first].got === 0 && tracks[0][first - 1].got > 0, 'the column before it has messages');
}

/** What the page shows of it. */
async function wantProofOnPage(demo) {
  for (const id of ['reseat-missed', 'reseat-twice', 'reseat-out-of-order']) {
    await demo.says(id, /^0$/);
    await demo.says(`${id}-ways`, /^0 in, 0 out$/);
  }
  await demo.says('reseat-back-ms', /^\d+$/);
  await demo.says(
    'reseat-status',
    /^No messages for (\d+ ms|\d+\.\d s)\. Back in seat \d+ with \d+ points?, \d+ replayed\.$/,
  );
}
