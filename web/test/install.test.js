import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { install, ReseatSocket } from '../reseat.js';
import { OFFER, scriptedTransport } from './helpers.js';

// install(): the replacement of globalThis.WebSocket.

const runtime = { window: undefined, document: undefined, base: undefined };
const had = Object.getOwnPropertyDescriptor(globalThis, 'WebSocket');
let uninstall = () => {};
let native;

/** Puts a native WebSocket in place, then installs. */
const set = (options = {}) => {
  native = scriptedTransport();
  Object.defineProperty(globalThis, 'WebSocket', {
    value: native,
    writable: true,
    configurable: true,
    enumerable: false,
  });
  uninstall = install({ runtime, ...options });
};

afterEach(() => {
  uninstall();
  if (had) Object.defineProperty(globalThis, 'WebSocket', had);
  else delete globalThis.WebSocket;
});

test('after install, new WebSocket makes a ReseatSocket over the native one', () => {
  set();
  const socket = new WebSocket('ws://game.test/', 'chat');
  assert.ok(socket instanceof ReseatSocket);
  assert.deepEqual(native.sockets[0].protocols, ['chat', ...OFFER]);
  assert.equal(WebSocket.OPEN, 1);
  assert.equal(WebSocket.prototype.OPEN, 1);
});

test('twice is as once', () => {
  set();
  const first = globalThis.WebSocket;
  assert.equal(install({ match: () => false }), uninstall);
  assert.equal(globalThis.WebSocket, first);
  const socket = new WebSocket('ws://game.test/');
  assert.ok(socket instanceof ReseatSocket);
  assert.equal(native.sockets.length, 1);
});

test('match decides; what it leaves out is native', () => {
  const asked = [];
  set({ match: (url) => (asked.push(url), url.includes('/game')) });
  const ours = new WebSocket('http://host/game');
  const other = new WebSocket('ws://host/chat', ['a']);
  const bare = new WebSocket('ws://host/bare');
  assert.ok(ours instanceof ReseatSocket);
  assert.ok(!(other instanceof ReseatSocket) && other instanceof native);
  assert.deepEqual(other.protocols, ['a']);
  assert.deepEqual(bare.protocols, []);
  assert.deepEqual(asked, ['ws://host/game', 'ws://host/chat', 'ws://host/bare']);
});

test('match may be an expression, sticky or not', () => {
  set({ match: /\/game/g });
  for (let i = 0; i < 3; i++) assert.ok(new WebSocket('ws://host/game') instanceof ReseatSocket);
  assert.ok(!(new WebSocket('ws://host/chat') instanceof ReseatSocket));
});

test('instanceof WebSocket holds for both kinds, and for old native sockets', () => {
  const Native = scriptedTransport();
  const old = new Native('ws://host/old');
  Object.defineProperty(globalThis, 'WebSocket', { value: Native, writable: true, configurable: true });
  uninstall = install({ runtime, match: /game/ });
  assert.ok(old instanceof WebSocket);
  assert.ok(new WebSocket('ws://host/game') instanceof WebSocket);
  assert.ok(new WebSocket('ws://host/chat') instanceof WebSocket);
  assert.ok(!({} instanceof WebSocket));
});

test('a class that extends WebSocket works for either kind of URL', () => {
  set({ match: /game/ });
  class Mine extends WebSocket {
    shout(text) {
      this.send(text.toUpperCase());
    }
  }
  for (const [url, protocol, sent] of [
    ['ws://host/game', 'reseat.v1', ['^ack 0', 'HI']],
    ['ws://host/chat', '', ['HI']],
  ]) {
    const mine = new Mine(url);
    const transport = native.sockets.at(-1);
    assert.ok(mine instanceof Mine && mine instanceof WebSocket);
    assert.equal(transport.protocols.includes('reseat.v1'), protocol !== '');
    if (protocol) transport.attach();
    else transport.open('');
    mine.shout('hi');
    assert.deepEqual(transport.take(), sent);
    mine.close();
    transport.end(1000);
  }
});

test('errors are those of the constructor', () => {
  set({ match: () => assert.fail('not asked') });
  assert.throws(() => new WebSocket('nonsense'), { name: 'SyntaxError' });
  assert.throws(() => new WebSocket(), TypeError);
});

test("options of install go to every socket; a library's own third argument does no harm", () => {
  set({ fallback: false });
  const socket = new WebSocket('ws://host/', [], { headers: {}, agent: null });
  native.sockets[0].drop();
  assert.equal(socket.readyState, 3);
  assert.equal(native.sockets.length, 1);
});

test('uninstall puts everything back', () => {
  set();
  uninstall();
  assert.equal(globalThis.WebSocket, native);
  assert.deepEqual(Object.keys(globalThis).includes('WebSocket'), false);
});

test('where there is no WebSocket, one must be given', () => {
  delete globalThis.WebSocket;
  if (!had) assert.throws(() => install(), TypeError);
  const Given = scriptedTransport();
  uninstall = install({ WebSocket: Given, runtime });
  new WebSocket('ws://host/');
  assert.equal(Given.sockets.length, 1);
});

test('another copy of the module finds the native WebSocket beneath, and installs nothing twice', async () => {
  set();
  const copy = await import('../dist/reseat.js');
  assert.notEqual(copy.ReseatSocket, ReseatSocket);
  const before = globalThis.WebSocket;
  copy.install();
  assert.equal(globalThis.WebSocket, before);
  new copy.ReseatSocket('ws://host/', [], { runtime });
  assert.deepEqual(native.sockets.at(-1).protocols, OFFER);
});

test('hideOffline keeps offline from later listeners only, and online from none', () => {
  const window = new EventTarget();
  const heard = [];
  window.addEventListener('offline', () => heard.push('earlier'));
  set({ hideOffline: true, runtime: { ...runtime, window } });
  window.addEventListener('offline', () => heard.push('later'));
  window.addEventListener('online', () => heard.push('online'));
  window.dispatchEvent(new Event('offline'));
  window.dispatchEvent(new Event('online'));
  assert.deepEqual(heard, ['earlier', 'online']);
  uninstall();
  window.dispatchEvent(new Event('offline'));
  assert.deepEqual(heard, ['earlier', 'online', 'earlier', 'later']);
});

test("a socket looks as one of the platform's under install()", () => {
  set();
  const socket = new WebSocket('ws://host/');
  assert.equal(socket.constructor, WebSocket);
  assert.equal(WebSocket.prototype.constructor, WebSocket);
  assert.deepEqual([WebSocket.name, WebSocket.length], ['WebSocket', 1]);
  uninstall();
  assert.equal(socket.constructor, ReseatSocket);
});

test('hooks are called with the socket and the detail, whatever the library does with it', () => {
  const heard = [];
  const hook = (name) => (socket, detail) => heard.push([name, socket, detail]);
  set({
    onDetach: hook('detach'),
    onResume: hook('resume'),
    onReplayed: hook('replayed'),
    onSkip: hook('skip'),
    onUpstream: hook('upstream'),
    onClose: hook('close'),
  });
  const socket = new WebSocket('ws://host/', [], { onClose: () => assert.fail("a library's own option") });
  const first = native.sockets[0];
  first.attach();
  first.drop();
  native.sockets[1].resume();
  native.sockets[1].control('skip', 2);
  native.sockets[1].control('upstream', { state: 'lost' });
  native.sockets[1].control('end', { code: 3001, reason: 'over' });
  native.sockets[1].end(3001);
  assert.deepEqual(
    heard.map(([name]) => name),
    ['detach', 'resume', 'replayed', 'skip', 'upstream', 'close'],
  );
  assert.ok(heard.every(([, it]) => it === socket));
  assert.deepEqual([heard[0][2].attempt, heard[1][2].replay], [1, 0]);
  assert.deepEqual([heard[3][2], heard[4][2]], [{ skipped: 2 }, { state: 'lost' }]);
  assert.deepEqual(heard[5][2], { code: 3001, reason: 'over', wasClean: true });
});

/** What is said on the console while `run` runs, and until what it loads is there. */
const warnings = async (run) => {
  const said = [];
  const { warn } = console;
  const loaded = async () => {
    await import('../client/page.js');
    await new Promise((done) => setTimeout(done));
  };
  await loaded(); // so that what earlier tests caused is said by now
  console.warn = (text) => said.push(text);
  try {
    run();
    await loaded();
  } finally {
    console.warn = warn;
  }
  return said;
};

test('a page is warned where scripts have run before a module, and only there', async () => {
  const page = (found, currentScript = null) => ({
    ...runtime,
    document: { currentScript, querySelector: () => found },
  });
  assert.match((await warnings(() => set({ runtime: page({}) })))[0], /reseat\.install\.js/);
  uninstall();
  assert.deepEqual(await warnings(() => set({ runtime: page(null) })), []);
  uninstall();
  assert.deepEqual(await warnings(() => set({ runtime: page({}, {}) })), [], 'a classic script comes first');
});
