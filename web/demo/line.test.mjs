import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Line } from './line.js';

globalThis.CloseEvent ??= /** @type {any} */ (
  class extends Event {
    constructor(/** @type {string} */ type, /** @type {object} */ init) {
      super(type);
      Object.assign(this, init);
    }
  }
);

/** The browser's WebSocket, as a test moves it. */
class Native extends EventTarget {
  /** @type {Native[]} */
  static made = [];
  /** @type {any[]} */
  sent = [];
  closed = false;
  readyState = 1;
  protocol = 'arena.v1';
  bufferedAmount = 0;
  /** @param {string} url */
  constructor(url) {
    super();
    this.url = url;
    Native.made.push(this);
  }
  send(/** @type {any} */ data) {
    this.sent.push(data);
  }
  close() {
    this.closed = true;
  }
  say(/** @type {string} */ type, /** @type {object} */ members) {
    this.dispatchEvent(Object.assign(new Event(type), members));
  }
}

/** A line with a clock of the test's, and its socket, open. */
function open(t, own = {}, around = {}) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const line = Object.assign(new Line({ Native, random: () => 0, ...around }), own);
  const socket = new line.WebSocket('ws://game.example/');
  const native = /** @type {Native} */ (Native.made.at(-1));
  /** @type {string[]} */
  const heard = [];
  for (const type of ['open', 'message', 'error', 'close'])
    socket.addEventListener(type, (/** @type {any} */ event) =>
      heard.push(event.type === 'message' ? event.data : `${type}${event.code ? ` ${event.code}` : ''}`),
    );
  const pass = (/** @type {number} */ ms) => {
    for (let i = 0; i < ms; i++) {
      now++;
      t.mock.timers.tick(1);
    }
  };
  return { line, socket, native, heard, pass };
}

test('without delay a line is the native socket', (t) => {
  const { socket, native, heard } = open(t);
  native.say('open', {});
  native.say('message', { data: 'one' });
  socket.send('up');
  native.say('close', { code: 4001, reason: 'x', wasClean: true });
  assert.deepEqual(
    [heard, native.sent, socket.readyState, socket.protocol],
    [['open', 'one', 'close 4001'], ['up'], 3, 'arena.v1'],
  );
});

test('a connection that closes, and has not said so, is given nothing', (t) => {
  const { socket, native } = open(t);
  native.say('open', {});
  for (const state of [2, 3]) {
    native.readyState = state;
    socket.send('late');
  }
  assert.deepEqual([native.sent, socket.bufferedAmount, socket.readyState], [[], 0, 1]);
});

test('delay holds both ways up, and nothing overtakes however it varies', (t) => {
  const { line, socket, native, heard, pass } = open(t);
  native.say('open', {});
  line.delay = 100; // of the round trip
  for (let i = 0; i < 50; i++) {
    line.delay = [100, 20, 60, 0][i % 4];
    native.say('message', { data: String(i) });
    socket.send(String(i));
    pass(1);
  }
  assert.ok(heard.length < 51, 'some are on their way');
  pass(100);
  const want = Array.from({ length: 50 }, (_, i) => String(i));
  assert.deepEqual(heard.slice(1), want);
  assert.deepEqual(native.sent, want);
});

test('a message comes after half of the round trip that was added', (t) => {
  const { line, native, heard, pass } = open(t);
  native.say('open', {});
  line.delay = 100;
  native.say('message', { data: 'late' });
  pass(48);
  assert.deepEqual(heard, ['open']);
  pass(3);
  assert.deepEqual(heard, ['open', 'late']);
});

test('a page that is left sends at once what the delay holds, and what is sent after', (t) => {
  const page = new EventTarget();
  const { line, socket, native, pass } = open(t, {}, { page });
  native.say('open', {});
  line.delay = 600;
  socket.send('input');
  page.dispatchEvent(new Event('pagehide'));
  socket.send('bye');
  assert.deepEqual(native.sent, ['input', 'bye']);
  page.dispatchEvent(new Event('pageshow')); // out of the back/forward cache
  socket.send('held');
  assert.equal(native.sent.length, 2);
  pass(310);
  assert.deepEqual(native.sent, ['input', 'bye', 'held']);
});

test('a page that is left sends a bye that the delay held already', (t) => {
  const page = new EventTarget();
  const { line, socket, native, pass } = open(t, {}, { page });
  native.say('open', {});
  line.delay = 600;
  socket.send('bye');
  socket.close();
  page.dispatchEvent(new Event('pagehide'));
  assert.deepEqual([native.sent, native.closed, socket.bufferedAmount], [['bye'], true, 0]);
  pass(600);
  assert.deepEqual(native.sent, ['bye'], 'once');
});

test('in airplane mode connections are gone at once, and none is made', (t) => {
  const { line, socket, native, heard, pass } = open(t);
  native.say('open', {});
  const before = Native.made.length;
  line.airplane = true;
  native.say('message', { data: 'never heard' });
  assert.deepEqual(heard, ['open', 'error', 'close 1006']);
  assert.equal(socket.readyState, 3);
  assert.ok(native.closed);
  const next = new line.WebSocket('ws://game.example/');
  /** @type {string[]} */
  const told = [];
  for (const type of ['open', 'error', 'close']) next.addEventListener(type, () => told.push(type));
  pass(100);
  assert.deepEqual([told, Native.made.length], [['error', 'close'], before], 'the network is not touched');
  line.airplane = false;
  new line.WebSocket('ws://game.example/');
  assert.equal(Native.made.length, before + 1);
});

const [ONE, TWO, THREE] = ['http://one.example/', 'http://two.example:8082/', 'https://three.example/'];

test('connections are cut and led to another node, with path and query', (t) => {
  const { line, native, heard } = open(t);
  native.say('open', {});
  line.through = TWO;
  line.cut();
  assert.deepEqual([heard, native.closed], [['open', 'error', 'close 1006'], true]);
  new line.WebSocket('ws://one.example/demo/play?name=x');
  assert.equal(Native.made.at(-1)?.url, 'ws://two.example:8082/demo/play?name=x');
  line.through = THREE;
  new line.WebSocket('ws://one.example/');
  assert.equal(Native.made.at(-1)?.url, 'wss://three.example/');
});

test('a connection that is made while others are cut stays', (t) => {
  const { line, socket } = open(t);
  /** @type {any[]} */
  const next = [];
  socket.addEventListener('close', () => next.push(new line.WebSocket('ws://game.example/')));
  line.cut();
  assert.deepEqual(
    next.map(({ readyState }) => readyState),
    [0],
  );
});

test('connections leave a node that does not answer, for one after the other', (t) => {
  const { line } = open(t);
  line.others = [ONE, TWO, THREE];
  let moved = 0;
  line.addEventListener('moved', () => moved++);
  /** @type {(string | null)[]} */
  const went = [];
  for (let i = 0; i < 3; i++) {
    new line.WebSocket('ws://one.example/');
    Native.made.at(-1)?.say('close', { code: 1006 });
    went.push(line.through);
  }
  assert.deepEqual([went, moved], [[TWO, THREE, ONE], 3]);
});

for (const [what, wait, leaves] of /** @type {const} */ ([
  ['soon says nothing of the node', 0, false],
  ['late was not answered', 4000, true],
]))
  test(`a connection that is given up ${what}`, (t) => {
    const { line, pass } = open(t);
    line.others = [ONE, TWO];
    const socket = new line.WebSocket('ws://one.example/');
    pass(wait);
    socket.close();
    Native.made.at(-1)?.say('close', { code: 1006 });
    assert.equal(line.through, leaves ? TWO : null);
  });

test('a connection that was open, or went elsewhere, does not lead others away', (t) => {
  const { line, native } = open(t);
  line.others = [ONE, TWO, THREE];
  native.say('open', {});
  native.say('close', { code: 1006 });
  assert.equal(line.through, null);
  new line.WebSocket('ws://one.example/');
  line.through = THREE;
  Native.made.at(-1)?.say('close', { code: 1006 });
  assert.equal(line.through, THREE);
});
