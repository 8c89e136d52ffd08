// The demo as a person plays it: keys, clicks, and what the page then says.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { suiteBrowser } from './support/browser.js';
import { DemoPage, wantKept } from './support/demo.js';
import { startGateway } from './support/gateway.js';

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

describe('the demo', () => {
  const browser = suiteBrowser();

  /** The page of a demo of the test's own. */
  async function open(t) {
    const { host } = await startGateway(t, '--demo');
    const page = await browser.page(t, { viewport: { width: 1280, height: 900 } });
    return DemoPage.open(page, host);
  }

  for (const how of ['close', 'reset']) {
    test(
      `a cut by "${how}" costs the plain player the seat and its points, and the other one nothing`,
      limit,
      async (t) => {
        const demo = await open(t);
        await demo.score(1);
        await demo.stand();
        const before = await demo.report();
        await demo.part(`cut-${how}`).click();
        const cut = await demo.until(
          'the plain player sits again',
          ({ plain }) => plain.seatsLost === 1 && plain.phase === 'playing',
          30_000,
        );
        const after = await demo.until(
          'the other one is back',
          ({ proof }) => proof.resumes === 1 && proof.phase === 'playing',
        );
        wantKept(before.proof, after.proof);
        wantLost(before.plain, cut.plain);
        await wantProofOnPage(demo);
        await demo.says('plain-seats-lost', /^1$/);
        assert.deepEqual(demo.complaints, [], 'the browser complains of nothing');
        assert.deepEqual(demo.strangers, [], 'nobody else is asked');
      },
    );
  }

  test(
    'silence costs the ReseatSocket player some seconds, and the plain one as long as it lasts',
    limit,
    async (t) => {
      const { host, history } = await startGateway(t, '--demo');
      const demo = await DemoPage.open(await browser.page(t, { viewport: { width: 1280, height: 900 } }), host);
      const before = await demo.score(1);
      await demo.part('cut-silence').click();
      const back = await demo.until(
        'the first one is back',
        ({ proof }) => proof.resumes === 1 && proof.phase === 'playing',
      );
      assert.equal(back.plain.state, 'silent', 'the plain one waits');
      wantKept(before.proof, back.proof);
      assert.ok(
        back.proof.lastResumeMs >= 2000 && back.proof.lastReplay > 20,
        `${back.proof.lastResumeMs} ms since the last message, ${back.proof.lastReplay} replayed`,
      );
      await demo.says('story', /ReseatSocket no messages for \d\.\d s, back, \d+ replayed/);
      await wantProofOnPage(demo);
      const events = await history(before.proof.session);
      assert.match(events.at(-1) ?? '', /^session\.(superseded|resumed)$/);
      await wantBandFromLastMessage(demo);
      // The gateway may have closed the plain connection: it pings about twice a minute.
      await demo.until('the plain one plays', ({ plain }) => plain.state === 'playing');
      await demo.says('story', /WebSocket no messages for \d+\.\d s, back (on the old connection|as a new player)/);
      const after = await demo.report();
      assert.deepEqual([after.proof.cuts, after.proof.resumes, after.proof.drops, after.plain.cuts], [1, 1, 1, 1]);
      assert.deepEqual(demo.complaints, [], 'the browser complains of nothing');
    },
  );

  test('quick clicks cut what there is to cut, each once, and nothing is refused', limit, async (t) => {
    const demo = await open(t);
    await demo.page.evaluate(async () => {
      for (let i = 0; i < 30; i++) {
        /** @type {HTMLElement} */ (document.querySelector('[data-testid="cut-reset"]')).click();
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

  test('the call to choose a connection goes when one is chosen', limit, async (t) => {
    const demo = await open(t);
    for (const side of ['reseat', 'plain']) await demo.part(`cut-${side}`).uncheck();
    await demo.part('cut-reset').click();
    await demo.says('cut-notice', /^Choose whose connection to cut\.$/);
    await demo.part('cut-plain').check();
    await demo.says('cut-notice', /^$/);
  });

  test('a player who finds no seat reads that the arena is full', limit, async (t) => {
    const demo = await open(t);
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
    const demo = await open(t);
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
    const demo = await open(t);
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

  test('a side that is not chosen is not cut', limit, async (t) => {
    const demo = await open(t);
    const before = await demo.report();
    await demo.part('cut-plain').uncheck();
    await demo.part('cut-reset').click();
    const after = await demo.until('the chosen side is back', ({ proof }) => proof.resumes === 1);
    assert.deepEqual([after.plain.cuts, after.plain.seatsLost, after.plain.seat], [0, 0, before.plain.seat]);
    assert.equal(after.plain.session, before.plain.session);
  });

  test('a cut that is not over is not counted as survived', limit, async (t) => {
    const demo = await open(t);
    await demo.part('cut-silence').click();
    const silent = await demo.until(
      'both are silent',
      ({ proof, plain }) => proof.state === 'silent' && plain.state === 'silent',
    );
    assert.deepEqual([silent.proof.cuts, silent.plain.cuts], [1, 1]);
    const texts = await demo.page.evaluate(() =>
      ['reseat', 'plain'].map((side) => document.querySelector(`[data-testid="${side}-survived"]`)?.textContent),
    );
    assert.deepEqual(texts, ['0 survived', '0 survived']);
  });

  test('twenty cuts in a row are survived with every message once and in order', limit, async (t) => {
    const demo = await open(t);
    const { proof } = await demo.report();
    await demo.part('cut-plain').uncheck();
    for (let i = 1; i <= 20; i++) {
      await demo.part(i % 2 ? 'cut-reset' : 'cut-close').click();
      await demo.until(`back after cut ${i}`, (now) => now.proof.resumes === i && now.proof.phase === 'playing');
    }
    const end = await demo.report();
    wantKept(proof, end.proof);
    await demo.says('reseat-survived', /^20 survived$/);
    await wantProofOnPage(demo);
  });
});

/** Another session in another seat, and the points are gone. */
function wantLost(before, after) {
  assert.notEqual(after.session, before.session);
  assert.notEqual(after.seat, before.seat);
  assert.equal(after.seatsLost, 1);
  assert.ok(after.pointsLost >= before.score, `${after.pointsLost} points lost, before ${before.score}`);
}

/** The timeline shows the outage of the first side from the column after its last message on. */
async function wantBandFromLastMessage(demo) {
  const tracks = /** @type {import('../demo/timeline.js').Column[][]} */ (await demo.page.evaluate('demo.tracks()'));
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
