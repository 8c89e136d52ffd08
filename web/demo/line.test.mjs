import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Line } from './line.js';

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

/** A line with a clock of the test's, and its socket. */
function open(t) {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const line = new Line({ Native });
  const socket = new line.WebSocket('ws://game.example/');
  const native = /** @type {Native} */ (Native.made.at(-1));
  const pass = (/** @type {number} */ ms) => (now += ms);
  return { line, socket, native, pass };
}

const [ONE, TWO, THREE] = ['http://one.example/', 'http://two.example:8082/', 'https://three.example/'];

test('connections are cut and led to another node, with path and query', (t) => {
  const { line, native } = open(t);
  line.through = TWO;
  line.cut();
  assert.ok(native.closed);
  new line.WebSocket('ws://one.example/demo/play?name=x');
  assert.equal(Native.made.at(-1)?.url, 'ws://two.example:8082/demo/play?name=x');
  line.through = THREE;
  new line.WebSocket('ws://one.example/');
  assert.equal(Native.made.at(-1)?.url, 'wss://three.example/');
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
    socket.readyState = 0;
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
