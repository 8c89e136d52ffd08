// The life of a page in each engine: reloads, the back/forward cache, hidden pages, sleep, many tabs, frames, workers.
// Times are printed; limits leave room for a machine with much else to do.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inEngines } from '../support/engines.js';
import { RemotePlayer, flows, join, openSite, play, settle, startScene } from '../support/scene.js';
import { until } from '../support/until.js';

const limit = { timeout: 180_000 };

/** What a page may take to be back, on a machine with much else to do; what it takes is printed. */
const BACK_MS = 20_000;

/** The same for a hidden page, whose timers ring once a second or less often. */
const HIDDEN_MS = 45_000;

/** Longer than a connection must hold to be a good one. */
const SETTLED_S = 6;

const TICK_MS = 50;

/** So many seconds of the game. */
function seconds({ seat }, count) {
  const { sent } = seat.report();
  return until(`${count} s of the game`, () => seat.report().sent >= sent + (1000 * count) / TICK_MS);
}

/** A page that plays, both ways. */
async function playing(page, scene, spec) {
  const game = await play(page, scene, spec);
  await begin(game);
  return game;
}

async function begin({ player, seat }) {
  seat.start(TICK_MS);
  await player.do('player.start(70)');
  await flows(player, seat);
}

/** From now on: how long it is until a message arrives that the page sends then. */
async function back({ player, seat }) {
  const from = performance.now();
  const { sent } = await player.report();
  await until('the page is back', () => seat.report().received > sent, { also: () => player.report() });
  return performance.now() - from;
}

inEngines('pages', (engine) => {
  const inPage = (claim, body) => test(claim, limit, body);

  /** Prints how long it took, and holds it against the limit. */
  const wantSoon = (what, ms, most = BACK_MS) => {
    console.log(`${engine.version}: ${what}: back after ${(ms / 1000).toFixed(1)} s`);
    assert.ok(ms < most, `${what}: ${ms} ms`);
  };

  /**
   * The page is left for good. Firefox closes WebSockets as a navigation begins, and tells the page of the end only
   * when it is through: a page whose next one comes sooner than its resume cannot say bye.
   */
  const left = async (seat, how) => {
    await until('the game server has the close', () => seat.ended);
    console.log(`${engine.version}: ${how}: ${seat.ended.code} ${seat.ended.reason}`);
    assert.equal(seat.ended.code, 1001);
    if (engine.name !== 'Firefox') assert.equal(seat.ended.reason, '');
  };

  inPage('a reload with storage goes on in the same session, with all that was sent', async (t) => {
    const scene = await startScene(t);
    const page = await engine.page(t);
    await openSite(page, scene);
    const url = `ws://${scene.relay.host}/reloaded`;
    const open = `Object.assign(window, { player: new Player(new ReseatSocket('${url}', [], { storage: sessionStorage })) })`;
    await page.evaluate(`${open}; player.socket.binaryType = 'arraybuffer'`);
    const player = new RemotePlayer(page);
    await player.until('it is open', ({ count }) => count.open);
    const { session } = await player.report();
    const [seat] = scene.game.seats;
    for (let i = 0; i < 2; i++) {
      seat.start(50);
      await player.until('messages come', ({ received }) => received > 10);
      await player.do('player.send()');
      seat.stop();
      await page.reload();
      await page.waitForFunction('window.ready');
      await page.evaluate(`void ${open}`);
      const report = await player.until('it is open again', ({ count }) => count.open);
      assert.equal(report.session, session);
      assert.equal(await page.evaluate('player.socket.resumed'), true);
    }
    await until('all has arrived', () => seat.ledger.received >= 1);
    assert.equal(scene.game.seats.length, 1, 'connections that the game server ever had');
    assert.equal(seat.ended, null);
  });

  inPage('a page that is come back to is in its session, where the engine has kept it', async (t) => {
    const scene = await startScene(t, '--heartbeat', '500ms');
    const page = await engine.page(t);
    const game = await playing(page, scene);
    const { session } = await game.player.report();
    await page.evaluate("window.shown = []; addEventListener('pageshow', ({ persisted }) => shown.push(persisted))");
    await page.goto(`${scene.site.origin}/player.js`);
    await until(
      'the session waits, or has ended',
      async () => (await scene.gateway.session(session)).state !== 'attached',
    );
    await page.back();
    await page.waitForFunction('window.ready');
    const kept = await page.evaluate('window.shown?.[0] === true');
    console.log(
      `${engine.version}: ${kept ? 'keeps' : 'DOES NOT KEEP'} a page with a WebSocket in its back/forward cache`,
    );
    if (kept) {
      await game.player.until('the page is back', ({ count }) => count.resume === 1);
      await begin(game);
      assert.equal((await settle(game.player, game.seat)).page.session, session);
      assert.equal(scene.game.seats.length, 1);
    } else {
      await left(game.seat, 'back');
    }
  });

  inPage('a page that is reloaded, or whose tab is closed, leaves no player', async (t) => {
    const scene = await startScene(t);
    for (const leave of ['reload', 'close']) {
      const page = await engine.page(t);
      const { player, seat } = await play(page, scene);
      await player.do('player.send(10_000); player.send(10_000)'); // text and bytes: a Blob is read later
      await page[leave]();
      await left(seat, leave);
      assert.deepEqual([seat.report().received, seat.report().faults], [2, []], 'what was sent before has come');
    }
  });

  inPage('a hidden page finds a dead line, and never a live one', async (t) => {
    const scene = await startScene(t);
    const page = await engine.page(t, { hidden: true });
    const game = await playing(page, scene);
    assert.equal(await page.evaluate('document.visibilityState'), 'hidden');
    await seconds(game, 10);
    assert.deepEqual([(await game.player.report()).count.detach, scene.relay.handshakes], [undefined, 1]);
    scene.relay.stall();
    wantSoon('a dead line under a hidden page', await back(game), HIDDEN_MS);
    await settle(game.player, game.seat);
  });

  for (const [claim, fail] of /** @type {[string, (relay: any) => void][]} */ ([
    ['dies', (relay) => relay.stall()],
    ['lives', () => {}],
  ]))
    inPage(`a machine that sleeps while its line ${claim} is back soon after it wakes`, async (t) => {
      const scene = await startScene(t);
      const game = await playing(await engine.page(t), scene);
      const wake = engine.sleep();
      try {
        fail(scene.relay);
        await seconds(game, 10);
      } finally {
        wake();
      }
      wantSoon(`sleep, the line ${claim}`, await back(game));
      await settle(game.player, game.seat);
    });

  inPage('a browser that was offline is back soon', async (t) => {
    const scene = await startScene(t);
    const page = await engine.page(t);
    const game = await playing(page, scene);
    if (!engine.canBeOffline)
      console.log(`${engine.version}: CANNOT BE PUT OFFLINE: played by its events, and refused connections`);
    const offline = (/** @type {boolean} */ off) =>
      engine.canBeOffline
        ? page.offline(off)
        : page.evaluate(
            `Object.defineProperty(navigator, 'onLine', { value: ${!off}, configurable: true }); dispatchEvent(new Event('${off ? 'offline' : 'online'}'))`,
          );
    const accept = scene.relay.refuse();
    await offline(true);
    await seconds(game, 8);
    await accept();
    await offline(false);
    wantSoon('offline for 8 s', await back(game));
    await settle(game.player, game.seat);
  });

  /** A page in a frame of this one, as far as a player needs it. */
  async function framed(page, scene) {
    await openSite(page, scene);
    await page.evaluate(
      "void document.body.append(Object.assign(document.createElement('iframe'), { src: location.href }))",
    );
    await page.waitForFunction('frames[0]?.ready');
    const evaluate = (script, given) => {
      const text = typeof script === 'function' ? `(${script})(${JSON.stringify(given)})` : script;
      return page.evaluate(`frames[0].eval(${JSON.stringify(text)})`);
    };
    return { evaluate };
  }

  for (const [claim, fail] of /** @type {[string, (relay: any) => any][]} */ ([
    ['refused', (relay) => relay.refuse()],
    ['never answered', (relay) => relay.swallow()],
  ]))
    inPage(
      `tabs, a frame, two sockets of a page, and a page whose policy forbids the probe: all are back after 10 s in which connections are ${claim}`,
      async (t) => {
        const scene = await startScene(t);
        const pages = await Promise.all(Array.from({ length: 7 }, () => engine.page(t)));
        const [holder, double, strict, ...tabs] = pages;
        const games = [await join(await framed(holder, scene), scene)];
        for (const page of [double, ...tabs]) games.push(await play(page, scene));
        await double.evaluate('void (window.first = player)');
        const first = /** @type {any} */ (games[1]);
        first.player = new RemotePlayer(
          /** @type {any} */ ({ evaluate: (script) => double.evaluate(script.replaceAll('player.', 'first.')) }),
        );
        games.push(await join(double, scene));
        await openSite(strict, scene, 'connect-src ws:');
        const probe = await strict.evaluate(
          `fetch('http://${scene.relay.host}/').then(() => 'allowed', () => 'forbidden')`,
        );
        assert.equal(probe, 'forbidden');
        games.push(await join(strict, scene));
        for (const game of games) await begin(game);
        await seconds(games[0], SETTLED_S);
        const end = fail(scene.relay);
        await seconds(games[0], 10);
        await end();
        wantSoon(
          `connections are ${claim}: the last of ${games.length}`,
          Math.max(...(await Promise.all(games.map(back)))),
        );
        for (const { player, seat } of games) await settle(player, seat);
        assert.equal(scene.game.seats.length, games.length);
        await holder.evaluate("document.querySelector('iframe').remove()");
        await until('the game server has the close', () => games[0].seat.ended);
        assert.deepEqual(games[0].seat.ended, { code: 1001, reason: '' });
      },
    );

  inPage('a worker is back', async (t) => {
    const scene = await startScene(t);
    const page = await engine.page(t);
    await openSite(page, scene);
    await page.evaluate(
      `void Object.assign(window, { worker: new Worker('/worker.js?gateway=${scene.gateway.host}&url=ws://${scene.relay.host}/worker', { type: 'module' }), seen: [] }); worker.onmessage = ({ data }) => seen.push(data); worker.onerror = ({ message }) => seen.push(message)`,
    );
    await page.waitForFunction("seen.includes('open')");
    const [seat] = scene.game.seats;
    seat.send();
    await page.waitForFunction("seen.includes('message 1')");
    scene.relay.reset();
    await page.waitForFunction("seen.includes('resume')");
    seat.send();
    await page.waitForFunction("seen.includes('message 2')");
    await page.evaluate('worker.postMessage("close")');
    await until('the game server has the close', () => seat.ended);
    assert.equal(seat.ended.code, 3001);
  });

  inPage('a socket that is closed before hello leaves no player', async (t) => {
    const scene = await startScene(t);
    const page = await engine.page(t);
    await openSite(page, scene);
    for (const ms of [0, 0, 1, 2, 4, 8, 16, 32]) {
      await page.evaluate(
        `new Promise((done) => { const socket = new ReseatSocket('ws://${scene.relay.host}/early'); socket.onclose = () => done(); setTimeout(() => socket.close(), ${ms}); })`,
      );
    }
    await page.evaluate(`void new ReseatSocket('ws://${scene.relay.host}/early').close()`);
    await until('no session is left', async () => (await scene.gateway.sessions()).length === 0);
    await until('no player is left in the game', () => scene.game.seats.every(({ ended }) => ended));
  });

  inPage('a large message on a slow line is not begun again', async (t) => {
    const scene = await startScene(t);
    const page = await engine.page(t);
    await openSite(page, scene);
    await page.evaluate(
      `class Seen extends WebSocket { constructor(...given) { super(...given); this.addEventListener('message', ({ data }) => (window.parts += /^\\x10parts /.test(data))); } };
       Object.assign(window, { parts: 0, player: new Player(new ReseatSocket('ws://${scene.relay.host}/large', [], { WebSocket: Seen })) }); player.socket.binaryType = 'arraybuffer'`,
    );
    const player = new RemotePlayer(page);
    await player.until('it is open', ({ count }) => count.open);
    const [seat] = scene.game.seats;
    scene.relay.rate.down = 60_000;
    const from = performance.now();
    seat.send(600_000);
    seat.send();
    await player.until('both have come', ({ received }) => received === 2);
    const seconds = (performance.now() - from) / 1000;
    const { count } = await player.report();
    console.log(`${engine.version}: 600 kB at 60 kB/s: ${seconds.toFixed(1)} s, detached ${count.detach ?? 0} times`);
    if (!(await page.evaluate('parts'))) {
      console.error('NOT TESTED: THE GATEWAY SENDS NO PARTS');
      return t.skip('the gateway sends no parts');
    }
    assert.equal(count.detach, undefined);
    return settle(player, seat);
  });
});
