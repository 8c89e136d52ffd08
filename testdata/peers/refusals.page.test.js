import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Server } from 'socket.io';
import { WebSocket as NodeWebSocket, WebSocketServer } from 'ws';
import { startGateway } from './lib/gateway.js';
import { Page } from './lib/page.js';
import { recipe } from './lib/recipes.js';
import { Relay } from './lib/relay.js';
import { openServer } from './lib/server.js';

// What the recipes show for refusals: a bundle that knows nothing of them, and a script of the page's own.

const RECIPE = recipe('Refusals');

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

test('an expired login', { timeout: 120_000 }, async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'reseat-peers-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const key = randomBytes(32);
  writeFileSync(join(dir, 'login.key'), key, { mode: 0o600 });
  const { addr } = await openServer(t);
  const gateway = await startGateway(t, ['--upstream', `ws://${addr}`, '--auth-key-file', join(dir, 'login.key'), '--auth-from', 'query:ticket']);
  const expired = login(key, { sub: 'ada', exp: 1 });
  const { shown, socket } = await open(t, gateway.addr, `/match/7?ticket=${expired}`);
  await once(socket, 'close');
  assert.deepEqual(shown, [['showLogin', 'login: expired']]);
});

test('a gateway that is full', { timeout: 120_000 }, async (t) => {
  const server = await openServer(t);
  new WebSocketServer({ server });
  const gateway = await startGateway(t, ['--upstream', `ws://${server.addr}`, '--max-sessions', '1']);
  const seated = await open(t, gateway.addr, '/match/7');
  await once(seated.socket, 'open');
  const { shown, socket } = await open(t, gateway.addr, '/match/7');
  await once(socket, 'close');
  const [[name, reason, ms]] = shown;
  assert.deepEqual([shown.length, name, reason], [1, 'showWait', 'full']);
  assert.ok(ms > 0, `${ms} ms`);
});

test('a game server that is down', { timeout: 120_000 }, async (t) => {
  const gateway = await startGateway(t, ['--upstream', 'ws://127.0.0.1:1']);
  const { shown, socket } = await open(t, gateway.addr, '/match/7');
  await once(socket, 'close');
  assert.deepEqual(shown.map(([name, reason]) => [name, reason]), [['showWait', 'upstream: unreachable']]);
});

test('a path that the gateway does not know', { timeout: 120_000 }, async (t) => {
  const { addr } = await openServer(t);
  const gateway = await startGateway(t, ['--route', `/match/*=ws://${addr}`]);
  // The page itself comes from the gateway; its socket has the wrong path.
  const { shown, socket } = await open(t, gateway.addr, '/lobby');
  await once(socket, 'close');
  assert.deepEqual(shown, [['showError', 'no route']]);
});

test('an absence for longer than the grace period', { timeout: 120_000 }, async (t) => {
  const server = await openServer(t);
  const joined = once(new WebSocketServer({ server }), 'connection');
  const gateway = await startGateway(t, ['--upstream', `ws://${server.addr}`, '--grace', '300ms']);
  const relay = await Relay.open(t, gateway.addr);
  const { shown, socket } = await open(t, relay.addr, '/match/7');
  const [game] = await joined;
  await once(socket, 'open');
  relay.goDown();
  await once(game, 'close');
  relay.comeUp();
  await once(socket, 'close');
  assert.deepEqual(shown, [['showLobby']]);
});

test('Socket.IO stays on polling where its WebSocket is refused, and without polling fails to connect', { timeout: 120_000 }, async (t) => {
  const { GAME, RECIPE: socketIO } = await import('./lib/socketio.js');
  const option = "transports: ['websocket']";
  assert.ok(RECIPE.text.includes(option));
  const page = new Page(t);
  const server = await openServer(t);
  new Server(server);
  const gateway = await startGateway(t, [...socketIO.flags({ 'localhost:3000': server.addr }), '--max-sessions', '1']);
  const seated = new NodeWebSocket(`ws://${gateway.addr}/socket.io/?EIO=4&transport=websocket`);
  await once(seated, 'message');
  page.open(`http://${gateway.addr}`);
  const { socket } = await page.run(socketIO.code('html'), { 'game.js': GAME });
  page.onLeave(() => socket.disconnect());
  await new Promise((done) => socket.io.engine.once('upgradeError', done));
  if (!socket.connected) await new Promise((done) => socket.once('connect', done));
  assert.equal(socket.io.engine.transport.name, 'polling');
  const { socket: alone } = await page.module(GAME.replace('io()', `io({ ${option}, forceNew: true, reconnection: false })`));
  page.onLeave(() => alone.disconnect());
  await new Promise((done) => alone.once('connect_error', done));
  seated.terminate();
});
