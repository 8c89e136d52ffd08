// The browser says that it is offline, or that it is back, whatever that is worth.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { suiteBrowser } from './support/browser.js';
import { flows, play, settle, startScene } from './support/scene.js';

const limit = { timeout: 180_000 };

/** A page that did not believe the browser would have tried at once, and several times by then. */
const OFFLINE_MS = 4_000;

/** From the browser's `online` to the resume: one attempt, begun at once. */
const AT_ONCE_MS = 1_000;

/** The longest delay after an attempt that failed: pacer.js. */
const NEXT_ATTEMPT_MS = 1_000;

/** reseat.v1: what asks is to have an answer within this. */
const PROBE_MS = 2_000;

describe('a browser that goes offline', () => {
  const browser = suiteBrowser();

  /** A page that plays and notes when the browser was online again. */
  async function playing(t, scene) {
    const context = await browser.context(t);
    const { player, seat } = await play(await context.newPage(), scene);
    seat.start(7);
    await player.do("player.start(7); addEventListener('online', () => (window.onlineAt = performance.now()))");
    await flows(player, seat);
    return { context, player, seat };
  }

  /** How long after `online` the newest resume came, in ms. */
  async function waited(player) {
    const { events } = await player.report();
    const { at } = events.findLast(({ type }) => type === 'resume');
    return at - (await player.do('onlineAt'));
  }

  test('no attempt is spent while it is offline, and one brings it back at once', limit, async (t) => {
    const scene = await startScene(t, '--heartbeat', '500ms'); // offline, Chromium delivers nothing, not even an end
    const { context, player, seat } = await playing(t, scene);
    await context.setOffline(true);
    await player.until('the browser says so', () => player.do('!navigator.onLine'));
    let attempts = 0;
    context.pages()[0].on('websocket', () => attempts++);
    const { handshakes } = scene.relay;
    scene.relay.reset();
    await player.until('the cut is noticed', ({ detached }) => detached);
    await pause(OFFLINE_MS); // that nothing happens cannot be waited for
    assert.deepEqual(
      [scene.relay.handshakes - handshakes, attempts],
      [0, 0],
      'handshakes at the relay, attempts of the page',
    );
    await context.setOffline(false);
    await player.until('the page is back', ({ count }) => count.resume === 1);
    assert.equal(scene.relay.handshakes - handshakes, 1, 'handshakes at the relay');
    // Chromium 148 says `online` a moment before it lets a connection out: that attempt fails at once.
    assert.ok(attempts === 1 || attempts === 2, `${attempts} attempts of the page`);
    const ms = await waited(player);
    const limitMS = attempts === 1 ? AT_ONCE_MS : AT_ONCE_MS + NEXT_ATTEMPT_MS;
    assert.ok(ms < limitMS, `back ${ms} ms after the browser was online`);
    await flows(player, seat);
    await settle(player, seat);
    assert.equal(scene.game.seats.length, 1);
  });

  test('a connection that has died meanwhile is found out within 2 s of its return', limit, async (t) => {
    const scene = await startScene(t); // a heartbeat of 15 s: only the question can find it out
    const { context, player, seat } = await playing(t, scene);
    scene.relay.stall();
    await context.setOffline(true);
    await player.until('the browser says so', () => player.do('!navigator.onLine'));
    await context.setOffline(false);
    await player.until('the page is back', ({ count }) => count.resume === 1);
    const ms = await waited(player);
    assert.ok(ms < PROBE_MS + AT_ONCE_MS, `back ${ms} ms after the browser was online`);
    await flows(player, seat);
    await settle(player, seat);
    assert.equal(scene.game.seats.length, 1);
  });

  test('a connection that lives on is kept', limit, async (t) => {
    const scene = await startScene(t);
    const { context, player, seat } = await playing(t, scene);
    await context.setOffline(true);
    await player.until('the browser says so', () => player.do('!navigator.onLine'));
    await context.setOffline(false);
    await player.until('it is online', () =>
      player.do("typeof onlineAt === 'number' && performance.now() - onlineAt > 2_500"),
    );
    await flows(player, seat);
    const { page } = await settle(player, seat);
    assert.equal(page.count.detach, undefined, 'no cut');
  });
});
