// How soon a page of each engine is back after an outage, in every way that a network fails. OUTAGES='28 90 300'
// takes other lengths than 8 s. After minutes, Chromium holds the pages back for each other's failures: all run
// in one browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { inEngines } from '../support/engines.js';
import { Relay } from '../support/relay.js';
import { play, settle, startBehind } from '../support/scene.js';
import { startTunnel } from '../support/tunnel.js';
import { until } from '../support/until.js';

const SECONDS = (process.env.OUTAGES ?? '8').split(' ').map(Number);

/** What a page may take on a machine with much else to do. On a quiet one it is below 3 s, which the output shows. */
const BACK_S = 20;

/** @typedef {Awaited<ReturnType<typeof startBehind>> & {relay: any}} Scene */

/** Each begins an outage and returns what ends it. @type {Record<string, (scene: Scene) => any>} */
const WAYS = {
  'connections are reset': ({ relay }) => relay.goDown(),
  'nobody listens': ({ relay }) => relay.refuse(),
  'connections are never answered': ({ relay }) => relay.swallow(),
  'packets vanish, and then all goes on': ({ relay }) => relay.darken(false),
  'packets vanish, and what was open stays dead': ({ relay }) => relay.darken(true),
  'the gateway stands still': ({ gateway }) => gateway.pause(),
  'a proxy in front answers 502': ({ relay }) => {
    const end = relay.divert((client) =>
      client.once('data', () =>
        client.end('HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'),
      ),
    );
    relay.reset();
    return end;
  },
};

inEngines('outages', (engine) => {
  test('a page is back soon after each, with every message once', { timeout: 60_000 * 20 }, async (t) => {
    /** @type {Record<string, Record<string, string>>} */
    const table = {};
    // Firefox makes one WebSocket connection at a time to an address, so each way has its own.
    const runs = Object.entries(WAYS).map(async ([way, begin], i) => {
      const address = `127.0.0.${2 + i}`;
      const behind = await startBehind(t, '--grace', `${Math.max(...SECONDS) + 20}s`);
      const { host } = behind.gateway;
      const relay = way.startsWith('packets')
        ? await startTunnel(t, host, address)
        : await Relay.start(t, host, { host: address });
      const scene = { ...behind, relay };
      const page = await engine.page(t);
      const { player, seat } = await play(/** @type {any} */ (page), /** @type {any} */ (scene));
      seat.start(50);
      await player.do('player.start(70)');
      for (const seconds of SECONDS) {
        await player.until('messages come', ({ received }) => received > 20);
        await pause(6_000); // longer than what was connected must hold to be a good connection
        const end = await begin(scene);
        await pause(1_000 * seconds);
        await end();
        const from = performance.now();
        const since = () => (performance.now() - from) / 1000;
        const { sent } = await player.report();
        const wait = (claim, so) =>
          until(`${way}, ${seconds} s: ${claim}`, so, { ms: 60_000, also: () => player.report() });
        await wait('the page is back', () => player.do('player.socket.readyState === 1 && !player.socket.detached'));
        const back = since();
        await wait('what was sent meanwhile has arrived, and what is sent now', () => seat.report().received > sent);
        (table[way] ??= {})[`${seconds} s`] = `${back.toFixed(1)} s (${since().toFixed(1)} s)`;
        assert.ok(back < BACK_S, `${way}, ${seconds} s: ${back} s`);
      }
      const { page: report } = await settle(player, seat);
      assert.equal(behind.game.seats.length, 1, 'connections that the game server ever had');
      table[way].detached = report.count.detach ?? 0;
    });
    const results = await Promise.allSettled(runs);
    console.log(`${engine.version}: back after (all messages that had waited through after)`);
    console.table(table);
    assert.deepEqual(
      results.flatMap((result) => (result.status === 'rejected' ? [String(result.reason)] : [])),
      [],
    );
  });
});
