import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test as untimed } from 'node:test';
import { Server } from 'socket.io';
import { WebSocket as NodeWebSocket, WebSocketServer } from 'ws';
import { startGateway } from '../../web/e2e/support/gateway.js';
import { Relay } from '../../web/e2e/support/relay.js';
import { directory } from './lib/directory.js';
import { Page } from './lib/page.js';
import { recipe } from './lib/recipes.js';
import { openServer } from './lib/server.js';
import { event, openWorld, outage } from './lib/world.js';

// What the recipes show for refusals: a bundle that knows nothing of them, and a script of the page's own.

const RECIPE = recipe('Refusals');

const test = (name, run) => untimed(name, { timeout: 120_000 }, run);

/** The page, whose bundle connects at once. @returns {Promise<{ shown: any[], socket: WebSocket }>} what it shows */
async function open(t, addr, path) {
  const page = new Page(t);
  page.open(`http://${addr}`);
  const shown = [];
  for (const name of ['showLobby', 'showLogin', 'showWait', 'showError']) globalThis[name] = (...args) => shown.push([name, ...args]);
  const html = RECIPE.code('html').replace(' data-banner', ''); // here are no elements
  assert.notEqual(html, RECIPE.code('html'));
  await page.run(html, { 'notices.js': RECIPE.code('notices.js'), 'bundle.js': `var socket = new WebSocket('ws://${addr}${path}');` });
  const { socket } = globalThis;
  page.onLeave(() => socket.close());
  return { shown, socket };
}

/** @param {Buffer} key @param {object} claims */
function login(key, claims) {
  const part = (json) => Buffer.from(JSON.stringify(json)).toString('base64url');
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}`;
  return `${signed}.${createHmac('sha256', key).update(signed).digest('base64url')}`;
}

/** Starts a game server, and the gateway with flags that name it. @param {string[]} [flags] */
async function start(t, flags = []) {
  const server = await openServer(t);
  const joined = once(new WebSocketServer({ server }), 'connection');
  const upstream = flags.includes('--route') ? [] : ['--upstream', `ws://${server.addr}`];
  const gateway = await startGateway(t, ...upstream, ...flags);
  return { joined, gateway };
}

/** What each refusal shows. The page itself comes from the gateway. */
const REFUSALS = {
  'an expired login': {
    flags: (file) => ['--auth-key-file', file, '--auth-from', 'query:ticket'],
    path: (key) => `/match/7?ticket=${login(key, { sub: 'ada', exp: 1 })}`,
    want: ['showLogin', 'login: expired'],
  },
  'a gateway that is full': {
    flags: () => ['--max-sessions', '1'],
    before: async (addr) => once(new NodeWebSocket(`ws://${addr}/match/7`), 'open'),
    want: ['showWait', 'full'],
    waits: true,
  },
  'a game server that is down': { flags: () => ['--route', '/*=ws://127.0.0.1:1'], want: ['showWait', 'upstream: unreachable'] },
  'a path that the gateway does not know': { flags: () => ['--route', '/lobby/*=ws://127.0.0.1:1'], want: ['showError', 'no route'] },
};

for (const [name, { flags, before = () => {}, path = () => '/match/7', want, waits }] of Object.entries(REFUSALS)) {
  test(name, async (t) => {
    const file = join(directory(t), 'login.key');
    const key = randomBytes(32);
    writeFileSync(file, key, { mode: 0o600 });
    const { gateway } = await start(t, flags(file));
    await before(gateway.host);
    const { shown, socket } = await open(t, gateway.host, path(key));
    await once(socket, 'close');
    assert.deepEqual(shown.map((call) => call.slice(0, 2)), [want]);
    if (waits) assert.ok(shown[0][2] > 0, `${shown[0][2]} ms`);
  });
}

test('an absence for longer than the grace period', async (t) => {
  const { gateway, joined } = await start(t, ['--grace', '300ms']);
  const relay = await Relay.start(t, gateway.host);
  const { shown, socket } = await open(t, relay.host, '/match/7');
  const [game] = await joined;
  await once(socket, 'open');
  const closed = once(socket, 'close');
  await outage({ relay }, () => once(game, 'close'));
  await closed;
  assert.deepEqual(shown, [['showLobby']]);
});

test('Socket.IO stays on polling where its WebSocket is refused, and without polling fails to connect', async (t) => {
  const { RECIPE: socketIO, withOptions } = await import('./lib/socketio.js');
  const { page, gateway } = await openWorld(t, socketIO, (server) => ({ io: new Server(server) }), { flags: ['--max-sessions', '1'] });
  const seated = new NodeWebSocket(`ws://${gateway.host}/socket.io/?EIO=4&transport=websocket`);
  t.after(() => seated.terminate());
  await once(seated, 'message');
  const { socket } = await page.run(socketIO.code('html'), { 'game.js': socketIO.code('game.js') });
  page.onLeave(() => socket.disconnect());
  await event(socket.io.engine, 'upgradeError');
  if (!socket.connected) await event(socket, 'connect');
  assert.equal(socket.io.engine.transport.name, 'polling');
  const { socket: alone } = await page.module(withOptions("{ transports: ['websocket'], forceNew: true, reconnection: false }"));
  page.onLeave(() => alone.disconnect());
  await event(alone, 'connect_error');
});
