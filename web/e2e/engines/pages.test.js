// The life of a page in each engine: reloads, the back/forward cache, hidden pages, sleep, many tabs, frames, workers.
// Times are printed; limits leave room for a machine with much else to do.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { inEngines } from '../support/engines.js';
import { RemotePlayer, flows, join, openSite, play, settle, startScene } from '../support/scene.js';
import { until } from '../support/until.js';

const limit = { timeout: 180_000 };

/** What a page may take to be back. */
const BACK_MS = 10_000;

/** The same for a hidden page, whose timers ring once a second or less often. */
const HIDDEN_MS = 30_000;

/** Longer than a connection must hold to be a good one. */
const SETTLED_MS = 6_000;

/** A page that plays, both ways. */
async function playing(page, scene, spec) {
  const game = await play(page, scene, spec);
  await begin(game);
  return game;
}

async function begin({ player, seat }) {
  seat.start(50);
  await player.do('player.start(70)');
  await flows(player, seat);
}

/** From now on: how long it is until a message arrives that the page sends then. */
async function back({ player, seat }) {
  const from = performance.now();
  const { sent } = await player.report();
  await until('the page is back', () => seat.report().received > sent, { ms: 60_000, also: () => player.report() });
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
    // Firefox closes the socket itself: its page is waited for a few seconds, and not for the grace period of 30.
    await until('the game server has the close', () => seat.ended, { ms: 20_000 });
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
    for (let i = 0; i < 3; i++) {
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
      const { seat } = await play(page, scene);
      await page[leave]();
      await left(seat, leave);
    }
  });

  inPage('a hidden page finds a dead line, and never a live one', async (t) => {
    const scene = await startScene(t);
    const page = await engine.page(t, { hidden: true });
    const game = await playing(page, scene);
    assert.equal(await page.evaluate('document.visibilityState'), 'hidden');
    await pause(15_000);
    assert.deepEqual([(await game.player.report()).count.detach, scene.relay.handshakes], [undefined, 1]);
    scene.relay.stall();
    wantSoon('a dead line under a hidden page', await back(game), HIDDEN_MS);
    await settle(game.player, game.seat);
  });

  inPage('a machine that sleeps while its line dies is back soon after it wakes', async (t) => {
    const scene = await startScene(t);
    const game = await playing(await engine.page(t), scene);
    const wake = engine.sleep();
    try {
      scene.relay.stall();
      await pause(12_000);
    } finally {
      wake();
    }
    wantSoon('sleep', await back(game));
    await settle(game.player, game.seat);
  });

  inPage('a machine that sleeps while its line lives goes on', async (t) => {
    const scene = await startScene(t);
    const game = await playing(await engine.page(t), scene);
    const wake = engine.sleep();
    await pause(8_000);
    wake();
    wantSoon('sleep, line alive', await back(game));
    await settle(game.player, game.seat);
  });

  inPage('a browser that was offline is back soon', async (t) => {
    const scene = await startScene(t);
    const page = await engine.page(t);
    const game = await playing(page, scene);
    if (!engine.canBeOffline)
      console.log(`${engine.version}: CANNOT BE PUT OFFLINE: played by its events, and refused connections`);
    const flag = (/** @type {boolean} */ online) =>
      page.evaluate(
        `Object.defineProperty(navigator, 'onLine', { value: ${online}, configurable: true }); dispatchEvent(new Event('${online ? 'online' : 'offline'}'))`,
      );
    const accept = scene.relay.refuse();
    scene.relay.reset();
    if (engine.canBeOffline) await page.offline(true);
    else await flag(false);
    await pause(8_000);
    await accept();
    if (engine.canBeOffline) await page.offline(false);
    else await flag(true);
    wantSoon('offline for 8 s', await back(game));
    await settle(game.player, game.seat);
  });

  for (const [claim, fail] of /** @type {[string, (relay: any) => any][]} */ ([
    ['connections are refused', (relay) => refuse(relay)],
    ['connections are never answered', (relay) => swallow(relay)],
  ])) {
    inPage(`ten tabs at once are back after 10 s in which ${claim}`, async (t) => {
      const scene = await startScene(t);
      const games = [];
      for (let i = 0; i < 10; i++) games.push(await playing(await engine.page(t), scene));
      await pause(SETTLED_MS);
      const end = fail(scene.relay);
      await pause(10_000);
      await end();
      const times = await Promise.all(games.map(back));
      wantSoon(`ten tabs, ${claim}, the last`, Math.max(...times));
      for (const { player, seat } of games) await settle(player, seat);
      assert.equal(scene.game.seats.length, 10);
    });
  }

  inPage('two sockets of one page are back after 10 s without an answer', async (t) => {
    const scene = await startScene(t);
    const page = await engine.page(t);
    const first = await playing(page, scene);
    await page.evaluate('void (window.first = player)');
    const second = await join(page, scene);
    await begin(second);
    await pause(SETTLED_MS);
    const end = swallow(scene.relay);
    await pause(10_000);
    await end();
    const { sent } = await page.evaluate('first.report()');
    const from = performance.now();
    await Promise.all([back(second), until('the first is back', () => first.seat.report().received > sent)]);
    wantSoon('two sockets', performance.now() - from);
    assert.equal(scene.game.seats.length, 2);
  });

  inPage('a page whose policy forbids the probe is back all the same', async (t) => {
    const scene = await startScene(t);
    const page = await engine.page(t);
    await openSite(page, scene, 'connect-src ws:');
    assert.equal(
      await page.evaluate(`fetch('http://${scene.relay.host}/').then(() => 'allowed', () => 'forbidden')`),
      'forbidden',
    );
    const game = await join(page, scene);
    await begin(game);
    for (const fail of [refuse, swallow]) {
      await pause(SETTLED_MS);
      const end = fail(scene.relay);
      await pause(10_000);
      await end();
      wantSoon(`no probe, ${fail.name}`, await back(game));
    }
    await settle(game.player, game.seat);
  });

  inPage('a page in a frame of another one is back, and leaves no player', async (t) => {
    const scene = await startScene(t);
    const page = await engine.page(t);
    await openSite(page, scene);
    await page.evaluate(
      "void document.body.append(Object.assign(document.createElement('iframe'), { src: location.href }))",
    );
    await page.waitForFunction('frames[0]?.ready');
    const frame = {
      evaluate: (script, given) =>
        page.evaluate(
          `frames[0].eval(${JSON.stringify(typeof script === 'function' ? `(${script})(${JSON.stringify(given)})` : script)})`,
        ),
    };
    const game = await join(frame, scene);
    await begin(game);
    await pause(SETTLED_MS);
    const end = refuse(scene.relay);
    await pause(8_000);
    await end();
    wantSoon('in a frame', await back(game));
    await settle(game.player, game.seat);
    await page.evaluate("document.querySelector('iframe').remove()");
    await until('the game server has the close', () => game.seat.ended, { ms: BACK_MS });
    assert.deepEqual(game.seat.ended, { code: 1001, reason: '' });
  });

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
    await until('the game server has the close', () => seat.ended, { ms: BACK_MS });
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
    await until('no session is left', async () => (await scene.gateway.sessions()).length === 0, { ms: BACK_MS });
    assert.deepEqual(scene.game.seats.filter(({ ended }) => !ended).length, 0, 'players in the game');
  });

  inPage('what is sent in the handler of open arrives first', async (t) => {
    const scene = await startScene(t);
    const page = await engine.page(t);
    await openSite(page, scene);
    await page.evaluate(
      `void (window.player = new Player(new ReseatSocket('ws://${scene.relay.host}/open'))).socket.addEventListener('open', () => { for (let i = 0; i < 5; i++) player.send(); })`,
    );
    await until('all five arrive', () => scene.game.seats[0]?.report().received === 5);
    assert.deepEqual(scene.game.seats[0].report().faults, []);
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
    scene.relay.rate.down = 30_000;
    const from = performance.now();
    seat.send(600_000);
    seat.send();
    await player.until('both have come', ({ received }) => received === 2, 150_000);
    const seconds = (performance.now() - from) / 1000;
    const { count } = await player.report();
    console.log(`${engine.version}: 600 kB at 30 kB/s: ${seconds.toFixed(1)} s, detached ${count.detach ?? 0} times`);
    if (!(await page.evaluate('parts'))) {
      console.error('NOT TESTED: THE GATEWAY SENDS NO PARTS');
      return t.skip('the gateway sends no parts');
    }
    assert.equal(count.detach, undefined);
    return settle(player, seat);
  });
});

/** Connections end, and new ones find nobody, until the returned function is called. */
function refuse(relay) {
  const end = relay.refuse();
  relay.reset();
  return end;
}

/** Connections fall silent for good, and new ones are never answered, until the returned function is called. */
function swallow(relay) {
  const end = relay.divert(() => {});
  relay.stall();
  return end;
}
