// The two lines of the README in ordinary pages: from their game's own server, through the gateway, and from another
// origin, under a strict Content-Security-Policy.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { WebSocketServer } from 'ws';
import { suiteBrowser } from './support/browser.js';
import { startGateway } from './support/gateway.js';
import { Relay } from './support/relay.js';
import { serve } from './support/serve.js';
import { until } from './support/until.js';

const limit = { timeout: 180_000 };

const INSTALL = '<script src="/reseat.install.js" data-banner></script>';
const page = (head, body = '') =>
  `<!doctype html><html lang="en"><title>game</title>${head}<body>${body}</body></html>`;

/** Code of some years ago, in sloppy mode: undeclared variables, `with`, a socket that waits for a click. */
const INLINE = page(
  `${INSTALL}<script>got = []; events = [];</script>`,
  `<button onclick="connect(this)">play</button><script>
  document.write('<script>ready = true;<\\/script>');
  function connect(button) {
    with (document) socket = new WebSocket('ws://' + location.host + '/game');
    socket.onopen = socket.onclose = socket.onerror = function () { events.push(arguments[0].type); };
    socket.onmessage = function () { got.push(+event.data); }; // window.event
    setInterval('say()', 50);
    button.parentNode.removeChild(button);
  }
  var sent = 0;
  function say() { if (socket.readyState == socket.OPEN) socket.send(++sent + ''); }
  </script>`,
);

/** As webpack 3 and UglifyJS wrote it: the global is looked for by all its names, and kept when the bundle is loaded. */
const BUNDLE = `!function(t){var e={};function n(r){if(e[r])return e[r].exports;var o=e[r]={i:r,l:!1,exports:{}};
return t[r].call(o.exports,o,o.exports,n),o.l=!0,o.exports}n.m=t,n.c=e,n(n.s=1)}([
function(t,e){var n;n=function(){return this}();try{n=n||Function("return this")()||(0,eval)("this")}catch(t){"object"==typeof window&&(n=window)}t.exports=n},
function(t,e,n){"use strict";(function(g){
var W=g.WebSocket||g.MozWebSocket,hasOwn=Object.prototype.hasOwnProperty,S=function(u){this.ws=new W(u,[]),this.ws.binaryType="arraybuffer";var s=this;
this.ws.onopen=this.ws.onclose=this.ws.onerror=function(t){g.events.push(t.type)},this.ws.onmessage=function(t){g.got.push(+t.data)},
this.timer=setInterval(function(){s.ws.readyState===W.OPEN&&s.ws.send(""+ ++g.sent)},50)};
g.events=[],g.got=[],g.sent=0,g.caught=new S(("https:"===location.protocol?"wss://":"ws://")+location.host+"/game"),
g.kinds=[typeof W,"WebSocket"in g,hasOwn.call(g,"WebSocket"),W.prototype===g.caught.ws.__proto__,g.caught.ws instanceof g.WebSocket]}).call(e,n(0))}]);`;

/** Caches the page and its scripts, and answers from the cache first. */
const SERVICE_WORKER = `
  self.addEventListener('install', (event) => event.waitUntil(
    caches.open('v1').then((cache) => cache.addAll(['/cached', '/reseat.install.js', '/bundle.js'])).then(() => skipWaiting())));
  self.addEventListener('activate', (event) => event.waitUntil(clients.claim()));
  self.addEventListener('fetch', (event) => event.respondWith(caches.match(event.request).then((hit) => hit ?? fetch(event.request))));`;

const BUNDLED = `<script src="/bundle.js"></script>`;

/** A page of another origin. Its bundle is a classic script in sloppy mode, and its socket hidden in a closure. */
const classic = (attributes) =>
  page(
    `<script nonce="n" src="http://GATEWAY/reseat.install.js" ${attributes}></script><script nonce="n">
  var hooks = [];
  Reseat.reseat.addEventListener('resume', function (event) { hooks.push(event.reloaded + ' ' + got.length); });
</script>`,
    `<script nonce="n">
  got = []; events = []; sent = 0; // no declaration: an error in strict mode
  (function () {
    var socket = new WebSocket('ws://RELAY/game/1' + location.search);
    socket.onmessage = function (event) { got.push(+event.data); };
    socket.onopen = socket.onerror = function (event) { events.push(event.type); };
    socket.onclose = function (event) { events.push('close ' + event.code + ' ' + event.reason); };
    setInterval(function () { if (socket.readyState === 1) socket.send(String(++sent)); }, 50);
    is = [socket instanceof WebSocket, socket.constructor === WebSocket, WebSocket.name];
  })();
</script>`,
  );

const FILES = {
  '/inline': INLINE,
  '/bundled': page(INSTALL, BUNDLED),
  '/strict': page(INSTALL, BUNDLED),
  '/cached': page(INSTALL, BUNDLED),
  '/framing': page('', '<iframe src="/bundled"></iframe>'),
  '/portal': page('', '<iframe src="/stored" sandbox="allow-scripts"></iframe>'),
  '/stored': page(INSTALL.replace('data-banner', 'data-storage data-banner'), BUNDLED),
  '/worker': page('', '<script src="/start.js"></script>'),
  '/classic': classic('data-match="/game" data-banner data-hide-offline'),
  '/classic-stored': classic('data-storage'),
  '/bundle.js': BUNDLE,
  '/sw.js': SERVICE_WORKER,
  '/start.js': `var worker = new Worker('/worker.js'); worker.onmessage = function (e) { window.got = e.data.got; window.events = e.data.events; };`,
  '/worker.js': `importScripts('/reseat.install.js', '/bundle.js'); setInterval(function () { postMessage({ got: got, events: events }); }, 50);`,
};

/** The Content-Security-Policy of a page. */
const POLICIES = {
  '/strict': "default-src 'none'; script-src 'self'; connect-src 'self'",
  '/classic':
    "default-src 'none'; script-src 'nonce-n'; connect-src *; style-src 'none'; base-uri 'none'; require-trusted-types-for 'script'",
};

/** A game server that counts, and serves its pages. */
async function startGame(t) {
  const game = { seats: [], hosts: { GATEWAY: '', RELAY: '' }, url: '' };
  const { server, origin } = await serve(t, ({ url = '' }, response) => {
    const body = FILES[url]?.replace(/GATEWAY|RELAY/g, (name) => game.hosts[name]);
    const type = url.endsWith('.js') ? 'text/javascript' : 'text/html';
    const policy = POLICIES[url.replace('-stored', '')];
    const headers = { 'Content-Type': `${type}; charset=utf-8`, ...(policy && { 'Content-Security-Policy': policy }) };
    response.writeHead(body ? 200 : 404, headers).end(body);
  });
  new WebSocketServer({ server }).on('connection', (ws) => {
    const seat = { sent: 0, got: [], ended: 0 };
    game.seats.push(seat);
    const timer = setInterval(() => ws.send(String(++seat.sent)), 50);
    ws.on('message', (data) => seat.got.push(Number(data)));
    ws.on('close', (code) => {
      seat.ended = code;
      clearInterval(timer);
    });
  });
  game.url = origin;
  return game;
}

/** A game, with a gateway and a network before it, and a page of the game's. */
async function startScene(t, browser, path, ...flags) {
  const game = await startGame(t);
  const elsewhere = path.startsWith('/classic');
  if (elsewhere) flags.push('--origin', game.url);
  const gateway = await startGateway(t, '--upstream', game.url, ...flags);
  const relay = await Relay.start(t, gateway.host);
  game.hosts = { GATEWAY: gateway.host, RELAY: relay.host };
  const address = (elsewhere ? game.url : `http://${relay.host}`) + path;
  const context = await browser.context(t);
  const errors = [];
  /** Another tab with the page. */
  const open = async () => {
    const tab = await context.newPage();
    tab.on('pageerror', (error) => errors.push(String(error)));
    tab.on('console', (message) => /Content Security Policy/.test(message.text()) && errors.push(message.text()));
    await tab.goto(address);
    return tab;
  };
  return { game, gateway, relay, context, errors, open, tab: await open() };
}

const inOrder = (numbers, from = 1) =>
  assert.deepEqual(
    numbers,
    Array.from(numbers, (_, i) => i + from),
  );

/** Messages go on coming, both ways. `where` has the page's variables. */
async function flows(where, seats, i = 0) {
  const count = () => where.evaluate('window.got ? got.length : 0');
  const [down, up] = [await count(), seats[i]?.got.length ?? 0];
  await until('messages come', async () => (await count()) > down + 5);
  await until('messages arrive', () => seats[i].got.length > up + 5);
}

/** The page loses its connection by a reset and by silence, and keeps its seat. */
async function keepsSeat({ game, gateway, relay, errors }, where) {
  await flows(where, game.seats);
  const [{ id, client }] = await gateway.sessions();
  assert.equal(client, 'resumable');
  const allow = relay.refuse();
  await until('the session is detached', async () => (await gateway.session(id)).state === 'detached');
  await allow();
  await flows(where, game.seats);
  relay.stall();
  await flows(where, game.seats);
  inOrder(await where.evaluate('got'));
  inOrder(game.seats[0].got);
  assert.deepEqual(await where.evaluate('events'), ['open']);
  assert.equal(game.seats.length, 1, 'connections that the game server ever had');
  assert.deepEqual(errors, []);
}

const inFrame = ({ tab }) => until('the frame is there', () => tab.frames()[1]);

/** What is done first, and where the game then is. @type {[string, string, ((scene: any) => any)?, string?][]} */
const PAGES = [
  [
    'sloppy code with inline handlers, which connects at a click',
    '/inline',
    async ({ tab }) => {
      await tab.getByRole('button').click();
      assert.equal(await tab.evaluate('ready'), true);
    },
  ],
  [
    'a bundle that keeps window.WebSocket when it is loaded',
    '/bundled',
    async ({ tab }) => assert.deepEqual(await tab.evaluate('kinds'), ['function', true, true, true, true]),
  ],
  ["a page whose policy is script-src 'self', without a word about styles", '/strict'],
  ['a page in a frame', '/framing', inFrame],
  ['a page in a sandboxed frame, whose origin is null and which has no storage', '/portal', inFrame, '*'],
  [
    'a page whose service worker answers from its cache',
    '/start.js',
    async ({ tab, relay }) => {
      await tab.evaluate(async () => {
        await navigator.serviceWorker.register('/sw.js');
        await navigator.serviceWorker.ready;
      });
      await tab.goto(`http://${relay.host}/cached`);
      const times = await tab.evaluate('performance.getEntriesByType("resource").map((e) => e.workerStart)');
      assert.ok(times.length >= 2 && times.every((at) => at > 0), 'the scripts came from the service worker');
    },
  ],
  ['a worker that imports the script', '/worker'],
];

describe('an ordinary page keeps its seat', { concurrency: 4 }, () => {
  const browser = suiteBrowser();

  for (const [claim, path, prepare, origin] of PAGES)
    test(claim, limit, async (t) => {
      const scene = await startScene(t, browser, path, ...(origin ? ['--origin', origin] : []));
      await keepsSeat(scene, (await prepare?.(scene)) ?? scene.tab);
    });

  test('a bundle of another origin, and the page says that it is away and back', limit, async (t) => {
    const scene = await startScene(t, browser, '/classic');
    const { tab, relay } = scene;
    await flows(tab, scene.game.seats);
    assert.deepEqual(await tab.evaluate('is'), [true, true, 'WebSocket']);
    assert.deepEqual(await tab.evaluate('Object.keys(Reseat)'), ['ReseatSocket', 'install', 'reseat', 'CloseCode']);
    const notice = tab.getByRole('status');
    assert.equal(await notice.count(), 0);
    const allow = relay.refuse();
    await notice.filter({ hasText: 'Connection lost. Reconnecting\u2026' }).waitFor({ state: 'visible' });
    const position = await notice.evaluate((element) => getComputedStyle(element).position);
    assert.equal(position, 'fixed', 'the policy lets it have its style');
    await allow();
    await notice.filter({ hasText: 'Reconnected.' }).waitFor({ state: 'visible' });
    await notice.waitFor({ state: 'hidden' });
    await keepsSeat(scene, tab);
  });

  test('a page that is refused learns why, after one handshake', limit, async (t) => {
    const scene = await startScene(t, browser, '/classic', '--max-sessions', '1');
    await flows(scene.tab, scene.game.seats);
    const second = await scene.open();
    await until('it gets the close', async () => (await second.evaluate('events.length')) === 2);
    assert.deepEqual(await second.evaluate('events'), ['error', 'close 4503 full']);
    assert.equal(scene.game.seats.length, 1);
  });

  test(
    'a page that is reloaded, and knows before its first message; a duplicated tab has its own',
    limit,
    async (t) => {
      const scene = await startScene(t, browser, '/classic-stored');
      const { tab, game } = scene;
      for (let i = 0; i < 2; i++) {
        await flows(tab, game.seats);
        assert.equal(
          await tab.evaluate('sessionStorage.getItem("newest") ? 1 : sessionStorage.length'),
          i,
          'no record while the page lives',
        );
        await tab.evaluate('addEventListener("pagehide", () => (sessionStorage.newest = got.at(-1)))');
        await tab.reload();
        await flows(tab, game.seats);
        inOrder(await tab.evaluate('got'), Number(await tab.evaluate('sessionStorage.newest')) + 1);
        assert.deepEqual([await tab.evaluate('events'), await tab.evaluate('hooks')], [['open'], ['true 0']]);
      }
      assert.equal(game.seats.length, 1);
      const [copy] = await Promise.all([
        scene.context.waitForEvent('page'),
        tab.evaluate(() => void window.open(location.href)),
      ]);
      await copy.waitForURL(tab.url()); // the event may come while the tab is still at about:blank
      await until('the copy has a seat', () => game.seats.length === 2);
      await flows(copy, game.seats, 1);
      await Promise.all([tab.reload(), copy.reload()]); // two tabs of one URL at once: each keeps its own
      for (const [i, page] of [tab, copy].entries()) await flows(page, game.seats, i);
      assert.deepEqual(
        game.seats.map(({ ended }) => ended),
        [0, 0],
      );
    },
  );
});
