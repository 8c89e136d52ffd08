// The two lines of the README in ordinary pages, which come through the gateway from their game's own server.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { describe, test } from 'node:test';
import { WebSocketServer } from 'ws';
import { suiteBrowser } from './support/browser.js';
import { startGateway } from './support/gateway.js';
import { Relay } from './support/relay.js';
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

const FILES = {
  '/inline': INLINE,
  '/bundled': page(INSTALL, BUNDLED),
  '/strict': page(INSTALL, BUNDLED),
  '/cached': page(INSTALL, BUNDLED),
  '/framing': page('', '<iframe src="/bundled"></iframe>'),
  '/portal': page('', '<iframe src="/stored" sandbox="allow-scripts"></iframe>'),
  '/stored': page(INSTALL.replace('data-banner', 'data-storage data-banner'), BUNDLED),
  '/worker': page('', '<script src="/start.js"></script>'),
  '/bundle.js': BUNDLE,
  '/sw.js': SERVICE_WORKER,
  '/start.js': `var worker = new Worker('/worker.js'); worker.onmessage = function (e) { window.got = e.data.got; window.events = e.data.events; };`,
  '/worker.js': `importScripts('/reseat.install.js', '/bundle.js'); setInterval(function () { postMessage({ got: got, events: events }); }, 50);`,
};

const STRICT = "default-src 'none'; script-src 'self'; connect-src 'self'";

/** A game server that counts, and serves its pages. */
async function startGame(t) {
  const seats = [];
  const server = createServer(({ url = '' }, response) => {
    const body = FILES[url];
    const type = url.endsWith('.js') ? 'text/javascript' : 'text/html';
    const policy = url === '/strict' ? { 'Content-Security-Policy': STRICT } : {};
    response.writeHead(body ? 200 : 404, { 'Content-Type': `${type}; charset=utf-8`, ...policy }).end(body);
  });
  new WebSocketServer({ server }).on('connection', (ws) => {
    const seat = { sent: 0, got: [] };
    seats.push(seat);
    const timer = setInterval(() => ws.send(String(++seat.sent)), 50);
    ws.on('message', (data) => seat.got.push(Number(data)));
    ws.on('close', () => clearInterval(timer));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { seats, url: `http://127.0.0.1:${server.address().port}` };
}

async function startScene(t, browser, path, ...flags) {
  const game = await startGame(t);
  const gateway = await startGateway(t, '--upstream', game.url, ...flags);
  const relay = await Relay.start(t, gateway.host);
  const tab = await browser.page(t);
  const errors = [];
  tab.on('pageerror', (error) => errors.push(String(error)));
  await tab.goto(`http://${relay.host}${path}`);
  return { game, gateway, relay, tab, errors };
}

const inOrder = (numbers) =>
  assert.deepEqual(
    numbers,
    Array.from(numbers, (_, i) => i + 1),
  );

/** The page loses its connection by a reset and by silence, and keeps its seat; `where` has its variables. */
async function keepsSeat({ game, gateway, relay, errors }, where) {
  const count = () => where.evaluate('window.got ? got.length : 0');
  const flows = async () => {
    const [down, up] = [await count(), game.seats[0]?.got.length ?? 0];
    await until('messages come', async () => (await count()) > down + 5);
    await until('messages arrive', () => game.seats[0].got.length > up + 5);
  };
  await flows();
  const [{ id, client }] = await gateway.sessions();
  assert.equal(client, 'resumable');
  const allow = relay.refuse();
  relay.reset();
  await until('the session is detached', async () => (await gateway.session(id)).state === 'detached');
  await allow();
  await flows();
  relay.stall();
  await flows();
  inOrder(await where.evaluate('got'));
  inOrder(game.seats[0].got);
  assert.deepEqual(await where.evaluate('events'), ['open']);
  assert.equal(game.seats.length, 1, 'connections that the game server ever had');
  assert.deepEqual(errors, []);
}

describe('an ordinary page keeps its seat', () => {
  const browser = suiteBrowser();

  test('sloppy code with inline handlers, which connects at a click', limit, async (t) => {
    const scene = await startScene(t, browser, '/inline');
    await scene.tab.getByRole('button').click();
    await keepsSeat(scene, scene.tab);
    assert.equal(await scene.tab.evaluate('ready'), true);
  });

  test('a bundle that keeps window.WebSocket when it is loaded', limit, async (t) => {
    const scene = await startScene(t, browser, '/bundled');
    await keepsSeat(scene, scene.tab);
    assert.deepEqual(await scene.tab.evaluate('kinds'), ['function', true, true, true, true]);
  });

  test("a page whose policy is script-src 'self', without a word about styles", limit, async (t) => {
    const scene = await startScene(t, browser, '/strict');
    const complaints = [];
    scene.tab.on(
      'console',
      (message) => /Content Security Policy/.test(message.text()) && complaints.push(message.text()),
    );
    await keepsSeat(scene, scene.tab);
    assert.deepEqual(complaints, []);
  });

  test('a page in a frame', limit, async (t) => {
    const scene = await startScene(t, browser, '/framing');
    const frame = await until('the frame is there', () => scene.tab.frames()[1]);
    await keepsSeat(scene, frame);
  });

  test('a page in a sandboxed frame, whose origin is null and which has no storage', limit, async (t) => {
    const scene = await startScene(t, browser, '/portal', '--origin', '*');
    const frame = await until('the frame is there', () => scene.tab.frames()[1]);
    await keepsSeat(scene, frame);
  });

  test('a page whose service worker answers from its cache', limit, async (t) => {
    const scene = await startScene(t, browser, '/start.js');
    await scene.tab.evaluate(async () => {
      await navigator.serviceWorker.register('/sw.js');
      await navigator.serviceWorker.ready;
    });
    await scene.tab.goto(`http://${scene.relay.host}/cached`);
    const workerTimes = await scene.tab.evaluate('performance.getEntriesByType("resource").map((e) => e.workerStart)');
    assert.ok(workerTimes.length >= 2 && workerTimes.every((at) => at > 0), 'the scripts came from the service worker');
    await keepsSeat(scene, scene.tab);
  });

  test('a worker that imports the script', limit, async (t) => {
    const scene = await startScene(t, browser, '/worker');
    await keepsSeat(scene, scene.tab);
  });
});
