// /reseat.install.js in front of a bundle that knows nothing of Reseat: a classic script in
// sloppy mode, under a strict Content-Security-Policy.
import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { WebSocketServer } from 'ws';
import { ordinaryBrowser, suiteBrowser } from './support/browser.js';
import { startGateway } from './support/gateway.js';
import { Relay } from './support/relay.js';
import { until } from './support/until.js';

const limit = { timeout: 180_000 };

/** The bundle. Its socket is hidden in a closure. */
const BUNDLE = `
  report = { got: [], events: [], sent: 0 }; // no declaration: an error in strict mode
  (function () {
    var socket = new WebSocket('ws://' + document.documentElement.dataset.gateway + '/game/1' + location.search);
    socket.onmessage = function (event) { report.got.push(+event.data); };
    socket.onopen = socket.onerror = function (event) { report.events.push(event.type); };
    socket.onclose = function (event) { report.events.push('close ' + event.code + ' ' + event.reason); };
    setInterval(function () { if (socket.readyState === 1) socket.send(String(++report.sent)); }, 50);
    report.is = [socket instanceof WebSocket, socket.constructor === WebSocket, WebSocket.name];
  })();`;

const POLICY =
  "default-src 'none'; script-src 'nonce-n'; connect-src *; style-src 'none'; base-uri 'none'; require-trusted-types-for 'script'";

/** A game that counts: each seat has its own numbers. */
async function startCounting(t) {
  const seats = [];
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  server.on('connection', (ws, { headers }) => {
    const seat = { sent: 0, got: [], ended: 0, player: headers['reseat-player'] };
    seats.push(seat);
    const timer = setInterval(() => ws.send(String(++seat.sent)), 50);
    ws.on('message', (data) => seat.got.push(Number(data)));
    ws.on('close', (code) => {
      seat.ended = code;
      clearInterval(timer);
    });
  });
  await once(server, 'listening');
  t.after(() => {
    for (const client of server.clients) client.terminate();
    server.close();
  });
  return { seats, url: `ws://127.0.0.1:${server.address().port}` };
}

/** The site, with what stands in front of the bundle. */
async function startClassic(t, front, flags = []) {
  const game = await startCounting(t);
  const site = createServer((request, response) => {
    const body = `<!doctype html><html lang="en" data-gateway="${relay.host}"><title>game</title>${front.replaceAll('GATEWAY', gateway.host)}<script nonce="n">${BUNDLE}</script>`;
    response
      .writeHead(200, { 'Content-Type': 'text/html; charset=utf-8', 'Content-Security-Policy': POLICY })
      .end(body);
  }).listen(0, '127.0.0.1');
  await once(site, 'listening');
  t.after(() => site.close());
  const origin = `http://127.0.0.1:${site.address().port}`;
  const gateway = await startGateway(t, '--upstream', game.url, '--origin', origin, ...flags);
  const relay = await Relay.start(t, gateway.host);
  return { game, gateway, relay, origin };
}

const SCRIPT = (attributes = '') => `<script nonce="n" src="http://GATEWAY/reseat.install.js" ${attributes}></script>`;

const count = (page) => page.evaluate('report.got.length');

/** Numbers go on coming, both ways. */
async function flows(page, seat) {
  const [down, up] = [await count(page), seat.got.length];
  await until('messages come', async () => (await count(page)) > down + 5);
  await until('messages arrive', () => seat.got.length > up + 5);
}

const inOrder = (numbers, from = 1) =>
  assert.deepEqual(
    numbers,
    Array.from(numbers, (_, i) => i + from),
  );

/** Keeps what the page hears of resumes. */
const HOOK = `<script nonce="n">
  var hooks = []; // "report" is the bundle's
  Reseat.reseat.addEventListener('resume', function (event) { hooks.push(event.reloaded + ' ' + report.got.length); });
</script>`;

/** The page, loaded a second time, has a second seat, as on its first visit. */
async function beginsAnew(page, { game }) {
  await until('there is a second seat', () => game.seats.length > 1);
  await until('it plays', async () => (await page.evaluate('window.report ? report.got.length : 0')) > 3);
  await until('it is heard', () => game.seats[1].got.length > 3);
  const { got, events } = await page.evaluate('report');
  inOrder(got);
  assert.deepEqual([events, await page.evaluate('hooks'), game.seats.length], [['open'], [], 2]);
}

/** Logins as cookies, and the flags of a gateway that verifies them. */
async function startLogin(t) {
  const dir = await mkdtemp(join(tmpdir(), 'reseat-e2e-'));
  t.after(() => rm(dir, { recursive: true }));
  const key = randomBytes(32);
  const file = join(dir, 'login.key');
  await writeFile(file, key, { mode: 0o600 });
  const encode = (part) => Buffer.from(JSON.stringify(part)).toString('base64url');
  const token = (sub) => {
    const said = `${encode({ alg: 'HS256' })}.${encode({ sub, exp: Math.floor(Date.now() / 1000) + 3600 })}`;
    return `${said}.${createHmac('sha256', key).update(said).digest('base64url')}`;
  };
  return { token, flags: ['--auth-key-file', file, '--auth-from', 'cookie:login'] };
}

describe('/reseat.install.js', () => {
  const browser = suiteBrowser();

  test('a bundle keeps its seat through cuts and silence, and the page says so', limit, async (t) => {
    const scene = await startClassic(t, SCRIPT('data-match="/game/" data-banner data-hide-offline'));
    const page = await browser.page(t);
    const complaints = [];
    page.on('console', (message) => /ERR_CONNECTION_REFUSED/.test(message.text()) || complaints.push(message.text())); // the browser's own
    page.on('pageerror', (error) => complaints.push(String(error)));
    await page.goto(scene.origin);
    await until('the game begins', async () => (await count(page)) > 3);
    const [seat] = scene.game.seats;
    assert.deepEqual(await page.evaluate('report.is'), [true, true, 'WebSocket']);
    assert.deepEqual(await page.evaluate('Object.keys(Reseat)'), ['ReseatSocket', 'install', 'reseat', 'CloseCode']);

    const notice = page.getByRole('status');
    assert.equal(await notice.count(), 0);
    const back = scene.relay.refuse();
    scene.relay.reset();
    await notice.filter({ hasText: 'Connection lost. Reconnecting\u2026' }).waitFor({ state: 'visible' });
    assert.equal(
      await notice.evaluate((element) => getComputedStyle(element).position),
      'fixed',
      'the policy lets it have its style',
    );
    back();
    await notice.filter({ hasText: 'Reconnected.' }).waitFor({ state: 'visible' });
    await flows(page, seat);
    await notice.waitFor({ state: 'hidden' });

    scene.relay.stall();
    await notice.waitFor({ state: 'visible' });
    await flows(page, seat);
    const { got, events } = await page.evaluate('report');
    inOrder(got);
    inOrder(seat.got);
    assert.deepEqual(events, ['open']);
    assert.equal(scene.game.seats.length, 1);
    assert.deepEqual(complaints, []);
  });

  test('a page learns why it was refused, after one handshake', limit, async (t) => {
    const scene = await startClassic(t, SCRIPT(), ['--max-sessions', '1']);
    const [first, second] = [await browser.page(t), await browser.page(t)];
    await first.goto(scene.origin);
    await until('the game begins', async () => (await count(first)) > 3);
    await second.goto(scene.origin);
    await until('it gets the close', async () => (await second.evaluate('report.events.length')) === 2);
    assert.deepEqual(await second.evaluate('report.events'), ['error', 'close 4503 full']);
    assert.equal(scene.game.seats.length, 1);
  });

  test('a reload keeps the seat, and the page knows before its first message', limit, async (t) => {
    const scene = await startClassic(t, SCRIPT('data-storage') + HOOK);
    const context = await browser.context(t);
    const page = await context.newPage();
    await page.goto(scene.origin);
    await until('the game begins', async () => (await count(page)) > 3);
    const [seat] = scene.game.seats;
    let newest = 0;
    for (let i = 0; i < 5; i++) {
      await flows(page, seat);
      newest = (
        await page.evaluate('addEventListener("pagehide", () => (sessionStorage.newest = report.got.at(-1))), report')
      ).got.at(-1);
      await page.reload();
      await until('it goes on', async () => (await count(page)) > 3);
      const { got, events } = await page.evaluate('report');
      newest = Number(await page.evaluate('sessionStorage.newest'));
      inOrder(got, newest + 1);
      assert.deepEqual(events, ['open']);
      assert.deepEqual(await page.evaluate('hooks'), ['true 0']);
    }
    assert.equal(scene.game.seats.length, 1);

    // A duplicated tab has the storage, and no record.
    const [copy] = await Promise.all([
      context.waitForEvent('page'),
      page.evaluate(() => void window.open(location.href)),
    ]);
    await copy.waitForURL(page.url()); // the event may come while the tab is still at about:blank
    await until('the copy plays', async () => (await count(copy)) > 3);
    assert.equal(scene.game.seats.length, 2);
    // Two tabs of one URL reload at once: each keeps its own.
    await Promise.all([page.reload(), copy.reload()]);
    for (const tab of [page, copy]) await until('it goes on', async () => (await count(tab)) > 3);
    assert.equal(scene.game.seats.length, 2);
    assert.deepEqual(
      scene.game.seats.map(({ ended }) => ended),
      [0, 0],
    );
  });

  test('nothing is stored while a page lives, so that one that crashed begins anew', limit, async (t) => {
    const scene = await startClassic(t, SCRIPT('data-storage') + HOOK);
    const context = await browser.context(t);
    const page = await context.newPage();
    await page.goto(scene.origin);
    await until('the game begins', async () => (await count(page)) > 3);
    assert.equal(await page.evaluate('sessionStorage.length'), 0);
    await page.reload();
    await until('it goes on', async () => (await count(page)) > 3);
    assert.equal(await page.evaluate('sessionStorage.length'), 0);
    assert.equal(scene.game.seats.length, 1);

    const tab = await context.newCDPSession(page); // Playwright's own page is of no use after a crash
    const crashed = page.waitForEvent('crash');
    tab.send('Page.crash').catch(() => {});
    await crashed;
    await tab.send('Page.reload');
    await beginsAnew(
      {
        evaluate: async (expression) =>
          (await tab.send('Runtime.evaluate', { expression, returnByValue: true })).result.value,
      },
      scene,
    );
  });

  test('a record that is too old is thrown away without an attempt', limit, async (t) => {
    const scene = await startClassic(t, SCRIPT('data-storage') + HOOK);
    const page = await browser.page(t);
    await page.addInitScript(() => {
      const now = Date.now;
      if (sessionStorage.getItem('late')) Date.now = () => now() + 3_600_000;
    });
    await page.goto(scene.origin);
    await until('the game begins', async () => (await count(page)) > 3);
    await page.evaluate('sessionStorage.late = 1');
    await page.reload();
    await beginsAnew(page, scene);
    assert.equal(scene.game.seats[0].ended, 0, 'the first page said no goodbye');
    assert.deepEqual(await page.evaluate('Object.keys(sessionStorage)'), ['late']);
    assert.deepEqual(await scene.gateway.refusals(), []);
  });

  test('a page whose storage is full says goodbye', limit, async (t) => {
    const scene = await startClassic(t, SCRIPT('data-storage') + HOOK);
    const page = await browser.page(t);
    await page.goto(scene.origin);
    await until('the game begins', async () => (await count(page)) > 3);
    await page.evaluate(() => {
      let text = '';
      for (let size = 1 << 23; size >= 1; size >>= 1) {
        try {
          sessionStorage.setItem('full', text + 'x'.repeat(size));
          text = sessionStorage.getItem('full');
        } catch {
          // The next half of it may fit.
        }
      }
    });
    await flows(page, scene.game.seats[0]); // it stood still meanwhile, and says goodbye only while connected
    await page.reload();
    await beginsAnew(page, scene);
    await until('the first seat is left', () => scene.game.seats[0].ended === 1001);
  });

  test(
    "another player's login after a reload gets a seat of its own, and none of the first one's messages",
    limit,
    async (t) => {
      const login = await startLogin(t);
      const scene = await startClassic(t, SCRIPT('data-storage') + HOOK, login.flags);
      const context = await browser.context(t);
      const page = await context.newPage();
      const become = (player) =>
        context.addCookies([{ name: 'login', value: login.token(player), url: `http://${scene.relay.host}` }]);
      await become('ada');
      await page.goto(scene.origin);
      await until('the game begins', async () => (await count(page)) > 3);
      const allow = scene.relay.refuse();
      scene.relay.reset();
      const { sent } = await page.evaluate('report');
      await until('messages wait', async () => (await page.evaluate('report')).sent > sent + 5);
      await become('eve');
      await page.reload();
      await allow();
      await beginsAnew(page, scene);
      const [ada, eve] = scene.game.seats;
      assert.deepEqual([ada.player, eve.player, ada.ended], ['ada', 'eve', 0]);
      inOrder(eve.got);
      assert.deepEqual(
        (await scene.gateway.refusals()).map(({ code }) => code),
        [4401],
        "the gateway refused the other's token",
      );
    },
  );

  test('a module that comes too late says what to do', limit, async (t) => {
    const module =
      '<script nonce="n" type="module">import { install } from "http://GATEWAY/reseat.js"; install();</script>';
    const scene = await startClassic(t, module);
    const page = await browser.page(t);
    const [message] = await Promise.all([page.waitForEvent('console'), page.goto(scene.origin)]);
    assert.equal(message.type(), 'warning');
    assert.match(
      message.text(),
      /^reseat: install\(\) runs after scripts of this page.*<script src=".*\/reseat\.install\.js"><\/script> above/s,
    );
  });
});

describe('the back/forward cache, with storage', () => {
  const browser = ordinaryBrowser();

  test('a page that is shown again takes its record back; where another page has it, it closes', limit, async (t) => {
    const scene = await startClassic(t, SCRIPT('data-storage'));
    const page = await browser.page(t);
    await page.goto(scene.origin);
    await until('the game begins', async () => (await count(page)) > 3);
    await page.evaluate('addEventListener("pageshow", ({ persisted }) => (report.shown = persisted))');
    await page.goto(`http://${scene.gateway.host}/reseat.js`);
    await page.goBack({ waitUntil: 'commit' });
    await until('it is shown', () => page.evaluate('report.shown').catch(() => false));
    await flows(page, scene.game.seats[0]);
    inOrder((await page.evaluate('report')).got);
    assert.equal(scene.game.seats.length, 1);

    await page.evaluate('history.pushState(null, "", "#x"); report.shown = 0');
    await page.goto(`${scene.origin}/other`); // the same game, by another page of the tab
    await until('it has the seat', async () => (await count(page)) > 3);
    assert.equal(scene.game.seats.length, 1);
    await page.goBack({ waitUntil: 'commit' });
    await until('it is shown', () => page.evaluate('report.shown').catch(() => false));
    assert.deepEqual((await page.evaluate('report')).events, ['open', 'error', 'close 1006 ']);
  });
});
