// A page that the browser freezes, as it does with tabs in the background.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ordinaryBrowser } from './support/browser.js';
import { flows, play, settle, startScene } from './support/scene.js';
import { until } from './support/until.js';

const limit = { timeout: 180_000 };

/** From the thaw to the resume: what asks is to have an answer within this. */
const PROBE_MS = 2_000;

/** One attempt, on a slow machine. */
const ATTEMPT_MS = 1_000;

/** At least so many messages must be replayed; twice as many fit in the replay buffer. */
const MANY = 100;

/** What the game server sends in a second, at the most. */
const A_SECOND = 1000 / 7;

describe('a frozen page', () => {
  const browser = ordinaryBrowser();

  /** A page that plays, and what freezes and thaws it. */
  async function playing(t, scene) {
    const page = await browser.page(t);
    const { player, seat } = await play(page, scene);
    seat.start(7);
    await player.do(
      "player.start(7); document.addEventListener('resume', () => (window.thawedAt = performance.now()))",
    );
    await flows(player, seat);
    const session = await page.context().newCDPSession(page);
    /** @param {'frozen' | 'active'} state */
    const enter = (state) => session.send('Page.setWebLifecycleState', { state });
    /** A page that was frozen stays hidden, and has slow timers. @param {boolean} enabled */
    const show = (enabled) => session.send('Emulation.setFocusEmulationEnabled', { enabled });
    return { player, seat, enter, show, session: (await player.report()).session };
  }

  test('is back within 2 s of its thaw, with all that came meanwhile', limit, async (t) => {
    const scene = await startScene(t, '--heartbeat', '500ms', '--grace', '20s');
    const { player, seat, enter, show, session } = await playing(t, scene);
    for (let i = 1; i <= 2; i++) {
      await show(false);
      await enter('frozen');
      await until('the gateway has missed it', async () => (await scene.gateway.session(session)).state === 'detached');
      const { sent } = seat.report();
      const frozen = await player.report();
      await until('the game has gone on for long', () => seat.report().sent > sent + 2 * MANY);
      assert.equal((await player.report()).received, frozen.received, 'the page stands still');
      await enter('active');
      const { events } = await player.until('the page is back', ({ count }) => count.resume === i);
      const { at, replay } = events.findLast(({ type }) => type === 'resume');
      const ms = at - (await player.do('thawedAt'));
      assert.ok(ms < PROBE_MS, `back ${ms} ms after the thaw`);
      assert.ok(replay >= MANY, `${replay} messages replayed`);
      await show(true);
      await flows(player, seat);
    }
    const report = await settle(player, seat);
    assert.equal(report.page.session, session);
    assert.equal(scene.game.seats.length, 1, 'connections that the game server ever had');
  });

  test('learns the end of a session that did not wait so long', limit, async (t) => {
    const scene = await startScene(t, '--heartbeat', '500ms', '--grace', '1s');
    const { player, seat, enter, session } = await playing(t, scene);
    await enter('frozen');
    await until('the grace period is over', () => seat.ended);
    assert.deepEqual(seat.ended, { code: 1001, reason: 'grace period over' });
    await enter('active');
    const { events, count } = await player.until('the page has its close', (report) => report.count.close);
    const { at, code, wasClean } = events.at(-1);
    assert.deepEqual({ code, wasClean, errors: count.error }, { code: 4404, wasClean: true, errors: undefined });
    const ms = at - (await player.do('thawedAt'));
    assert.ok(ms < PROBE_MS, `closed ${ms} ms after the thaw`);
    assert.equal((await scene.gateway.session(session)).reason, 'grace_over');
    assert.equal(scene.game.seats.length, 1, 'no second session is begun');
  });

  test('whose process stood still while its connection died knows within 2 s too', limit, async (t) => {
    const scene = await startScene(t); // a heartbeat of 15 s: only the question after a sleep can find it out
    const { player, seat } = await playing(t, scene);
    const renderers = await browser.renderers();
    const signal = (name) => renderers.forEach((id) => process.kill(id, name));
    let before = { handshakes: 0, at: 0 };
    try {
      signal('SIGSTOP'); // as when a machine sleeps: nobody tells the page, and timers are late
      const { sent } = seat.report();
      await until('some messages wait for the page', () => seat.report().sent > sent + 10);
      scene.relay.stall(); // and nothing tells that the connection is dead: those messages do not either
      await until('the timers are late by more than 5 s', () => seat.report().sent > sent + 7 * A_SECOND);
    } finally {
      before = { handshakes: scene.relay.handshakes, at: performance.now() };
      signal('SIGCONT');
    }
    await player.until('the page is back', ({ count }) => count.resume === 1);
    const ms = performance.now() - before.at;
    assert.ok(ms < PROBE_MS + ATTEMPT_MS, `back ${ms} ms after it went on`);
    assert.equal(scene.relay.handshakes, before.handshakes + 1, 'by one attempt');
    await flows(player, seat);
    await settle(player, seat);
  });
});
