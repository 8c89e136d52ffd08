// A line that is slow, busy or quiet, but alive, and must not be taken for a dead one.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { suiteBrowser } from './support/browser.js';
import { ticking, wantOnce } from './support/ticking.js';
import { until } from './support/until.js';

const limit = { timeout: 180_000 };

describe('a line that is alive', () => {
  const browser = suiteBrowser();

  test('raises no alarm while the page is busy for 3 or 4 s, less than answer_ms', limit, async (t) => {
    const { scene, player, seat } = await ticking(t, await browser.page(t), { flags: ['--heartbeat', '15s'] });
    for (const ms of [3_000, 4_000]) {
      await player.do(`{ const end = performance.now() + ${ms}; while (performance.now() < end); }`);
      await pause(3_000);
    }
    const page = await wantOnce({ scene, player, seat }, 1);
    assert.equal(page.count.detach, undefined);
  });

  test('brings a large message through once, though it is slow', { timeout: 300_000 }, async (t) => {
    const { scene, player, seat } = await ticking(t, await browser.page(t), { up: false });
    seat.stop();
    await player.until('all ticks have come', ({ received }) => received === seat.sent);
    scene.relay.rate.down = 120_000;
    seat.send(900_000); // 7.5 s: longer than a lively line may be silent
    seat.start(100);
    await player.until('it has come', ({ received }) => received > seat.sent - 20, 60_000);
    scene.relay.rate.down = Infinity;
    const { handshakes } = scene.relay;
    assert.ok(handshakes <= 3, `${handshakes} handshakes`);
    await wantOnce({ scene, player, seat }, handshakes);
  });

  test('raises no alarm while a large message is on its slow way up', limit, async (t) => {
    const { scene, player, seat } = await ticking(t, await browser.page(t), {
      flags: ['--max-message', '8MiB'],
      up: false,
    });
    seat.stop(); // nothing comes but what the gateway says by itself
    scene.relay.rate.up = 400_000;
    await player.do('player.send(5_000_000)');
    await until('it has come', () => seat.report().received === 1, { ms: 40_000 });
    scene.relay.rate.up = Infinity;
    const page = await wantOnce({ scene, player, seat }, 1);
    assert.equal(page.count.detach, undefined);
  });

  test('is left alone, lively or quiet', limit, async (t) => {
    const { scene, player, seat } = await ticking(t, await browser.page(t), { up: false });
    await pause(5_000);
    seat.stop();
    await pause(8_000);
    const page = await wantOnce({ scene, player, seat }, 1);
    assert.equal(page.count.detach, undefined);
  });
});
