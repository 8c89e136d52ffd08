import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { Window } from 'happy-dom';
import { effectScope, nextTick, ref, watch } from 'vue';
import { WebSocket } from 'ws';
import { startGateway } from './lib/gateway.js';
import { project } from './lib/release.js';

// useReseat of the installed package, in the real frameworks, through the real gateway.

const window = new Window();
Object.assign(globalThis, { window, document: window.document, WebSocket });
globalThis.navigator ??= window.navigator; // Node has one from version 21
const { document } = globalThis;
const React = await import('react');
const { createRoot } = await import('react-dom/client');

/** What happened, in order; what follows on itself counts once. */
class Log {
  entries = [];
  #waiting = [];

  push(entry) {
    if (this.entries.at(-1) !== entry) this.entries.push(entry);
    for (const check of this.#waiting) check();
  }

  has(entry) {
    return this.#until(() => this.entries.includes(entry));
  }

  /** So many entries. */
  counts(n) {
    return this.#until(() => this.entries.length >= n);
  }

  #until(when) {
    return new Promise((resolve) => {
      const check = () => when() && resolve();
      this.#waiting.push(check);
      check();
    });
  }
}

/** Imports a module of the installed package. */
const installed = (t, name) => import(pathToFileURL(`${project(t, {})}/node_modules/reseat/${name}.js`).href);

/** The game server has no more than so many players. */
const most = async ({ games }, n) => {
  while (games.size > n) await Promise.race([...games].map((game) => once(game, 'close')));
};

/** The game server has no player any more. */
const nobody = (gateway) => most(gateway, 0);

test('React: status and messages, a new URL, and a socket that is closed', { timeout: 120_000 }, async (t) => {
  const gateway = await startGateway(t);
  const { useReseat } = await installed(t, 'react');
  const log = new Log();
  const statuses = new Log();
  function Game({ path, name }) {
    const url = path && `ws://${gateway.host}${path}`;
    const { socket, status } = useReseat(url, { onMessage: ({ data }) => log.push(name + data) });
    React.useEffect(() => statuses.push(status), [status]);
    React.useEffect(() => void (Game.socket = socket), [socket]);
    return React.createElement('p', null, status);
  }
  const root = createRoot(document.body.appendChild(document.createElement('div')));
  // StrictMode mounts everything twice: the first socket must be gone.
  const render = (props) => root.render(React.createElement(React.StrictMode, null, React.createElement(Game, props)));
  render({ path: '/match/7', name: '' });
  await Promise.all([log.has('welcome to /match/7'), statuses.counts(2)]);
  await most(gateway, 1); // the first socket says bye as soon as it can
  await gateway.disconnectAll();
  await statuses.has('detached');
  Game.socket.send('back');
  await Promise.all([log.has('back'), statuses.counts(4)]);
  assert.equal(document.body.textContent, 'open');
  render({ path: '/match/7', name: 'newest: ' });
  Game.socket.send('handler');
  await log.has('newest: handler');
  assert.equal(gateway.games.size, 1, 'a new handler is no new socket');
  render({ path: '/match/8', name: '' });
  await Promise.all([log.has('welcome to /match/8'), statuses.counts(6)]);
  const first = Game.socket;
  render({ path: '', name: '' });
  await nobody(gateway);
  assert.equal(Game.socket, null);
  assert.ok(first.readyState >= first.CLOSING);
  render({ path: '/match/9', name: '' });
  await Promise.all([log.has('welcome to /match/9'), statuses.counts(8)]);
  root.unmount();
  await nobody(gateway);
  assert.deepEqual(log.entries, ['welcome to /match/7', 'back', 'newest: handler', 'welcome to /match/8', 'welcome to /match/9']);
  assert.deepEqual(statuses.entries, ['connecting', 'open', 'detached', 'open', 'connecting', 'open', 'connecting', 'open']);
});

test('Vue: status and messages, a new URL, and a socket that is closed', { timeout: 120_000 }, async (t) => {
  const gateway = await startGateway(t);
  const { useReseat } = await installed(t, 'vue');
  const log = new Log();
  const path = ref('/match/7');
  const scope = effectScope();
  const { socket, status } = scope.run(() => {
    const mine = useReseat(() => path.value && `ws://${gateway.host}${path.value}`, { onMessage: ({ data }) => log.push(data) });
    watch(mine.status, (now) => log.push(now), { immediate: true, flush: 'sync' });
    return mine;
  });
  await log.has('welcome to /match/7');
  assert.equal(status.value, 'open');
  await gateway.disconnectAll();
  await log.has('detached');
  socket.value.send('back');
  await log.has('back');
  assert.equal(status.value, 'open');
  const first = socket.value;
  path.value = '/match/8';
  await nextTick();
  assert.ok(first.readyState >= first.CLOSING);
  await log.has('welcome to /match/8');
  path.value = '';
  await nextTick();
  assert.deepEqual([socket.value, status.value], [null, 'connecting']);
  await nobody(gateway);
  path.value = '/match/9';
  await log.has('welcome to /match/9');
  scope.stop();
  await nobody(gateway);
  assert.deepEqual(log.entries, ['connecting', 'open', 'welcome to /match/7', 'detached', 'open', 'back', 'connecting', 'open', 'welcome to /match/8', 'connecting', 'open', 'welcome to /match/9']);
});
