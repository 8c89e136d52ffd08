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
