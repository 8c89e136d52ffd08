// A network that says nothing when it dies: connections are held, bytes go nowhere.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { ordinaryBrowser, suiteBrowser } from './support/browser.js';
import { settle } from './support/scene.js';
import { ticking, wantOnce } from './support/ticking.js';
import { until } from './support/until.js';

const limit = { timeout: 180_000 };

/** From a cut, where there is another path, or from the network's return, to the resume. */
const BACK_MS = 5_000;

/** When the newest event of a kind came, by the page's clock. */
const at = ({ events }, kind) => events.findLast(({ type }) => type === kind).at;

describe('a line that dies in silence', () => {
  const browser = suiteBrowser();

  for (const up of [true, false]) {
    test(
      `is replaced within 5 s where another path is there, with ticks ${up ? 'both ways' : 'down only'}`,
      limit,
      async (t) => {
        const { scene, player, seat, now } = await ticking(t, await browser.page(t), { up });
        for (let i = 1; i <= 2; i++) {
          const cut = await now();
          scene.relay.hold();
          const report = await player.until('the page is back', ({ count }) => count.resume === i);
          const ms = at(report, 'resume') - cut;
          assert.ok(ms < BACK_MS, `back ${ms} ms after the cut`);
          assert.ok(Math.abs(report.events.findLast(({ type }) => type === 'resume').ms - ms) < 500, 'and it says so');
          assert.equal(report.count.detach, i, 'detach, once for each');
          await flowsDown(player);
        }
        await wantOnce({ scene, player, seat }, 3);
      },
    );
  }

  test('is replaced where nothing comes down any more, though all goes up', limit, async (t) => {
    const { scene, player, seat, now } = await ticking(t, await browser.page(t));
    const cut = await now();
    scene.relay.hold(['down']);
    const report = await player.until('the page is back', ({ count }) => count.resume === 1);
    const ms = at(report, 'resume') - cut;
    assert.ok(ms < BACK_MS, `back ${ms} ms after the cut`);
    await wantOnce({ scene, player, seat }, 2);
  });

  test('is replaced where nothing goes up any more, once the gateway misses it', limit, async (t) => {
    const { scene, player, seat } = await ticking(t, await browser.page(t), { flags: ['--heartbeat', '2s'] });
    scene.relay.hold(['up']);
    await player.until('the page is back', ({ count }) => count.resume === 1);
    await wantOnce({ scene, player, seat }, 2);
  });

  test("is replaced within 5 s of the network's return, where nothing at all came through", limit, async (t) => {
    const { scene, player, seat, now } = await ticking(t, await browser.page(t));
    scene.relay.hold(); // for good: its flow is forgotten by something in between
    const back = scene.relay.holdNew();
    await pause(9_500);
    assert.equal((await player.report()).detached, true);
    const returned = await now();
    back();
    const report = await player.until('the page is back', ({ count }) => count.resume === 1);
    const ms = at(report, 'resume') - returned;
    assert.ok(ms < BACK_MS, `back ${ms} ms after the return`);
    const { page } = await settle(player, seat);
    assert.equal(page.count.open, 1);
  });

  test('that speaks before the new one is answered was a false alarm: the page stays on it', limit, async (t) => {
    const { scene, player, seat } = await ticking(t, await browser.page(t));
    const old = scene.relay.hold();
    const fresh = scene.relay.holdNew({ probesPass: true });
    const before = await player.until('it is suspected', ({ detached }) => detached);
    await until('the new one is under way', () => scene.relay.handshakes === 2);
    old();
    const report = await player.until('it is not', ({ detached }) => !detached);
    const { replay, lost, ms } = report.events.findLast(({ type }) => type === 'resume');
    assert.deepEqual({ replay, lost }, { replay: 0, lost: 0 });
    assert.ok(ms > 3_900, `${ms} ms`);
    assert.ok(report.received >= before.received);
    await pause(500); // the page has closed the attempt
    fresh();
    const page = await wantOnce({ scene, player, seat }, 2);
    assert.deepEqual([page.count.detach, page.count.resume, page.count.replayed], [1, 1, 1]);
  });

  test('that speaks between the 101 and the hello of the new one: it counts until that hello', limit, async (t) => {
    const { scene, player, seat } = await ticking(t, await browser.page(t));
    const old = scene.relay.hold();
    const fresh = scene.relay.holdBehindHead();
    const { received } = await player.until('it is suspected', ({ detached }) => detached);
    const { session } = await player.report();
    await until('the gateway has given its place away', async () =>
      (await scene.gateway.history(session)).includes('session.superseded'),
    );
    await pause(200); // the 101 has come
    old(); // ticks, and a 4409 behind them
    const between = await player.until('its ticks are taken', (report) => report.received > received);
    assert.deepEqual([between.detached, between.count.resume], [true, undefined]);
    await pause(1_000);
    assert.equal(scene.relay.handshakes, 2, 'the attempt goes on');
    fresh();
    await player.until('the page is back', ({ detached }) => !detached);
    const page = await wantOnce({ scene, player, seat }, 2);
    assert.deepEqual([page.count.detach, page.count.resume], [1, 1]);
  });

  test('that speaks first, though the attempt has reached the gateway: resume once more', limit, async (t) => {
    const { scene, player, seat } = await ticking(t, await browser.page(t));
    const old = scene.relay.hold();
    const fresh = scene.relay.holdNew({ probesPass: true });
    await player.until('it is suspected', ({ detached }) => detached);
    const { session } = await player.report();
    await until('the attempt is under way', () => scene.relay.handshakes === 2);
    fresh();
    scene.relay.hold(['down']); // the attempt reaches the gateway, its 101 not the page
    await until('the gateway has given its place away', async () =>
      (await scene.gateway.history(session)).includes('session.superseded'),
    );
    old(); // ticks, and a 4409 behind them
    await player.until('the page is back', ({ count, detached }) => count.resume === 2 && !detached);
    const page = await wantOnce({ scene, player, seat }, 3);
    assert.deepEqual(
      page.events.filter(({ type }) => type !== 'open').map(({ type }) => type),
      ['detach', 'resume', 'replayed', 'detach', 'resume', 'replayed'],
    );
  });

  test('is given up when a message is not answered, within the answer timeout', limit, async (t) => {
    const { scene, player, seat, now } = await ticking(t, await browser.page(t), { up: false });
    seat.stop();
    await pause(4_000); // not lively any more
    const cut = await now();
    scene.relay.hold();
    await player.do('player.send()');
    const report = await player.until('the page is back', ({ count }) => count.resume === 1);
    const ms = at(report, 'resume') - cut;
    assert.ok(ms > 4_500 && ms < 5_500, `back ${ms} ms after the cut`);
    await wantOnce({ scene, player, seat }, 2);
  });

  test('is given up after heartbeat and answer timeout where it was idle', limit, async (t) => {
    const { scene, player, seat, now } = await ticking(t, await browser.page(t), {
      flags: ['--heartbeat', '6s'],
      up: false,
    });
    seat.stop();
    await pause(4_000); // not lively any more
    const cut = await now();
    scene.relay.hold();
    const report = await player.until('the page is back', ({ count }) => count.resume === 1);
    const ms = at(report, 'resume') - cut;
    assert.ok(ms < 11_500, `back ${ms} ms after the cut`); // two heartbeats would be 12 s
    await wantOnce({ scene, player, seat }, 2);
  });
});

describe('a hidden page', () => {
  const browser = ordinaryBrowser();

  test('finds a dead line in the end, and never a live one', limit, async (t) => {
    const page = await browser.page(t);
    const { scene, player, seat } = await ticking(t, page, { up: false });
    await browser.page(t); // another one in front
    const session = await page.context().newCDPSession(page);
    await session.send('Emulation.setFocusEmulationEnabled', { enabled: false });
    await player.until('it is hidden', () => player.do("document.visibilityState === 'hidden'"));
    await pause(8_000);
    assert.deepEqual([(await player.report()).count.detach, scene.relay.handshakes], [undefined, 1]);
    scene.relay.hold();
    await player.until('the page is back', ({ count }) => count.resume === 1, 20_000);
    await wantOnce({ scene, player, seat }, 2);
  });
});

/** Waits until ticks come again. */
async function flowsDown(player) {
  const { received } = await player.report();
  await player.until('ticks come', (report) => report.received > received + 8);
}
