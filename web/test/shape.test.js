import assert from 'node:assert/strict';
import { test } from 'node:test';
import Default, { ReseatSocket } from '../reseat.js';
import { attached, OFFER, scriptedTransport, settle, world } from './helpers.js';

// The shape of WebSocket: members, errors, events.

const make = (url, protocols, runtime) =>
  new ReseatSocket(url, protocols, {
    WebSocket: scriptedTransport(),
    runtime: { window: undefined, document: undefined, base: undefined, ...runtime },
  });
const throws = (run, name, message) =>
  assert.throws(run, (error) => error instanceof DOMException && error.name === name, message);

test('the module exports the class by name and by default', () => assert.equal(Default, ReseatSocket));

test('constants stand on the class and its instances, and cannot be changed', () => {
  const { socket } = world();
  const names = ['CONNECTING', 'OPEN', 'CLOSING', 'CLOSED'];
  for (const holder of [ReseatSocket, ReseatSocket.prototype, socket])
    assert.deepEqual(
      names.map((name) => holder[name]),
      [0, 1, 2, 3],
    );
  for (const holder of [ReseatSocket, ReseatSocket.prototype]) {
    assert.deepEqual(Object.getOwnPropertyDescriptor(holder, 'OPEN'), {
      value: 1,
      writable: false,
      enumerable: true,
      configurable: false,
    });
  }
  assert.equal(Object.prototype.toString.call(socket), '[object WebSocket]');
  assert.ok(socket instanceof EventTarget);
  const members = [];
  for (const name in socket) members.push(name);
  for (const name of [
    'url',
    'readyState',
    'bufferedAmount',
    'onopen',
    'onmessage',
    'onerror',
    'onclose',
    'extensions',
    'protocol',
    'close',
    'binaryType',
    'send',
    'session',
    'detached',
  ]) {
    assert.ok(members.includes(name), name);
  }
});

test('names and lengths are those of WebIDL', () => {
  const { prototype } = ReseatSocket;
  assert.deepEqual(
    [ReseatSocket.name, ReseatSocket.length, prototype.send.length, prototype.close.length],
    ['ReseatSocket', 1, 1, 0],
  );
  assert.deepEqual([prototype.send.name, prototype.close.name], ['send', 'close']);
});

test('members want a WebSocket as their this', () => {
  for (const name of ['url', 'readyState', 'bufferedAmount', 'protocol', 'extensions', 'binaryType', 'onopen']) {
    const { get, set } = Object.getOwnPropertyDescriptor(ReseatSocket.prototype, name);
    assert.throws(() => get.call({}), TypeError, name);
    if (set)
      for (const value of ['arraybuffer', 'nonsense', null]) assert.throws(() => set.call({}, value), TypeError, name);
  }
  assert.throws(() => ReseatSocket.prototype.send.call({}, 'x'), TypeError);
  assert.throws(() => ReseatSocket.prototype.close.call({}), TypeError);
});

test('bad URLs are SyntaxErrors', () => {
  for (const url of [
    '',
    'nonsense',
    '/relative',
    'ws://',
    'ftp://host/',
    'mailto:x',
    'ws://host/#frag',
    'ws://host/#',
    'ws://host:99999/',
    'http://host/#x',
  ]) {
    throws(() => make(url), 'SyntaxError', url);
  }
  assert.throws(() => new ReseatSocket(), TypeError);
  assert.throws(() => ReseatSocket('ws://x'), TypeError);
});

test('http and https become ws and wss; relative URLs are resolved where there is a base', () => {
  assert.equal(make('http://host/x?y').url, 'ws://host/x?y');
  assert.equal(make('https://host:443/').url, 'wss://host/');
  assert.equal(make(new URL('WSS://Host/a b')).url, 'wss://host/a%20b');
  assert.equal(make('/match/7', undefined, { base: 'https://game.test/play/' }).url, 'wss://game.test/match/7');
  assert.equal(make('match', undefined, { base: 'http://game.test:81/play/' }).url, 'ws://game.test:81/play/match');
});

test('protocols must be undefined, a string or an iterable of strings, valid and different', () => {
  for (const protocols of [
    null,
    5,
    true,
    {},
    { headers: {} },
    [1],
    ['a', null],
    '',
    'a b',
    'a,b',
    'h\u00e9',
    ['a', 'a'],
    ['a', 'A'],
    ['ok', 'not ok'],
    'x\n',
    Symbol.iterator,
  ]) {
    throws(() => make('ws://host/', protocols), 'SyntaxError', String(protocols));
  }
  for (const [protocols, offered] of [
    [undefined, []],
    [[], []],
    ['chat', ['chat']],
    [
      ['a', 'b'],
      ['a', 'b'],
    ],
    [new Set(['a.b', "!#$%&'*+-^_`|~"]), ['a.b', "!#$%&'*+-^_`|~"]],
  ]) {
    const { last } = world({ protocols });
    assert.deepEqual(last().protocols, [...offered, ...OFFER]);
  }
});

test('options may be anything, and unknown members are ignored', () => {
  const Transport = scriptedTransport();
  const socket = new ReseatSocket('ws://host/', undefined, {
    WebSocket: Transport,
    headers: { a: 1 },
    agent: false,
    perMessageDeflate: {},
    retry: 9,
  });
  assert.deepEqual(Transport.sockets[0].url, 'ws://host/');
  socket.close();
  if (globalThis.WebSocket) return; // it would be used
  for (const options of [null, 5, 'x', true])
    assert.throws(() => new ReseatSocket('ws://host/', [], options), /no WebSocket here/);
});

test('send while connecting is an InvalidStateError', () => {
  const { socket, last } = world();
  throws(() => socket.send('x'), 'InvalidStateError');
  last().open();
  throws(() => socket.send('x'), 'InvalidStateError');
  assert.equal(socket.bufferedAmount, 0);
  assert.throws(() => socket.send(), TypeError);
});

test('other values are sent as their strings', () => {
  const { socket, last } = attached();
  for (const value of [1, null, undefined, true, { toString: () => 'own' }, ['a', 'b'], 10n]) socket.send(value);
  assert.deepEqual(last().take(), ['1', 'null', 'undefined', 'true', 'own', 'a,b', '10']);
  assert.throws(() => socket.send(Symbol('x')), TypeError);
});

test('close validates its arguments as the standard does', () => {
  const { socket, last } = attached();
  for (const code of [0, 999, 1001, 1005, 1006, 2999, 5000, 65_535, NaN, null, 'x', -1, 70_000])
    throws(() => socket.close(code), 'InvalidAccessError', String(code));
  throws(() => socket.close(1000, 'x'.repeat(124)), 'SyntaxError');
  throws(() => socket.close(1000, '\u20ac'.repeat(42)), 'SyntaxError'); // 126 bytes
  throws(() => socket.close(undefined, '\ud800'.repeat(42)), 'SyntaxError');
  assert.equal(socket.readyState, 1);
  socket.close('3000.4', '\u20ac'.repeat(41));
  assert.deepEqual(last().take(), [`^bye ${JSON.stringify({ code: 3000, reason: '\u20ac'.repeat(41) })}`]);
});

test('a code is rounded, half to even, and an unpaired surrogate in a reason is replaced', () => {
  for (const [code, rounded] of [
    [3000.5, 3000],
    [3001.5, 3002],
    [999.5, 1000],
  ]) {
    const { socket, last } = attached();
    socket.close(code, 'a\ud800b\u{1f600}');
    assert.deepEqual(last().take(), [`^bye ${JSON.stringify({ code: rounded, reason: 'a\ufffdb\u{1f600}' })}`]);
  }
});

test('after the end send drops, and bufferedAmount counts it', async () => {
  const { socket, last } = attached();
  socket.close();
  last().end(1000);
  socket.send('four');
  socket.send(new Uint8Array(3));
  socket.send(new Blob(['12345']));
  assert.equal(socket.bufferedAmount, 12);
  await settle();
  assert.equal(socket.bufferedAmount, 12);
});

test('binaryType is blob by default, takes arraybuffer, and ignores the rest', async () => {
  const { socket, last, log } = attached();
  assert.equal(socket.binaryType, 'blob');
  last().receive(new Uint8Array([1]).buffer);
  socket.binaryType = 'arraybuffer';
  socket.binaryType = 'nodebuffer';
  assert.equal(socket.binaryType, 'arraybuffer');
  last().receive(new Uint8Array([2]).buffer);
  last().receive(Buffer.from([3])); // a transport that knows no binaryType
  assert.ok(log[0] instanceof Blob);
  assert.deepEqual([...new Uint8Array(await log[0].arrayBuffer())], [1]);
  assert.deepEqual([...new Uint8Array(log[1])], [2]);
  assert.deepEqual([...new Uint8Array(log[2])], [3]);
  assert.equal(last().binaryType, 'arraybuffer');
});

test('events are those of the platform', async () => {
  const { socket, last } = attached({ url: 'wss://game.test:8443/x' });
  const events = [];
  for (const type of ['message', 'close']) socket.addEventListener(type, (event) => events.push(event));
  last().receive('x');
  socket.close(3001, 'r');
  last().end(3001);
  const [message, close] = events;
  assert.ok(message instanceof MessageEvent);
  assert.deepEqual(
    [message.data, message.origin, message.lastEventId, message.target],
    ['x', 'wss://game.test:8443', '', socket],
  );
  assert.ok(close instanceof Event);
  if (globalThis.CloseEvent) assert.ok(close instanceof CloseEvent);
  assert.equal(close.constructor.name, 'CloseEvent');
  assert.deepEqual([close.code, close.reason, close.wasClean], [3001, 'r', true]);
});

test('on error and close the socket is already CLOSED', async () => {
  const { socket, last } = attached();
  const states = [];
  socket.onclose = () => states.push(socket.readyState);
  last().verdict(4410, '');
  last().end(4410);
  assert.deepEqual(states, [3]);
});

test('handler attributes behave as event handler attributes', () => {
  const { socket, last } = attached();
  const calls = [];
  assert.equal(socket.onmessage, null);
  socket.onmessage = function first(event) {
    calls.push(['first', this === socket, event.data]);
  };
  socket.addEventListener('message', () => calls.push(['listener']));
  const second = () => calls.push(['second']);
  socket.onmessage = second; // keeps its place before the listener
  assert.equal(socket.onmessage, second);
  last().receive('x');
  socket.onmessage = 'not a function';
  assert.equal(socket.onmessage, null);
  const object = {};
  socket.onmessage = object;
  assert.equal(socket.onmessage, object, 'an object is kept, and not called');
  last().receive('y');
  socket.onmessage = null;
  socket.onmessage = second; // set anew: behind the listener now
  last().receive('z');
  assert.deepEqual(calls, [['second'], ['listener'], ['listener'], ['listener'], ['second']]);
});

test('no event is dispatched from within send() or close(), or from within another event', async () => {
  const { socket, last, log } = attached();
  const echo = last();
  echo.send = (data) => {
    echo.sent.push(data);
    if (data === 'marco') echo.receive('polo'); // at once, from within send()
    if (String(data).startsWith('\x10bye')) echo.end(1000);
  };
  let depth = 0;
  socket.addEventListener('message', () => {
    assert.equal(depth++, 0);
    if (log.length < 3) socket.send('marco');
    depth--;
  });
  socket.send('marco');
  assert.deepEqual(log, []);
  await settle();
  assert.deepEqual(log, ['polo', 'polo', 'polo']);
  socket.close();
  assert.equal(log.length, 3);
  await settle();
  assert.equal(log[3], 'close 1005 ');
});

test('a listener may close the socket, or send, in any event', async () => {
  const { socket, last, log } = attached();
  socket.addEventListener('detach', () => socket.send('from detach'));
  socket.addEventListener('resume', () => {
    socket.send('from resume');
    socket.close(4001);
  });
  last().drop();
  last().resume();
  assert.deepEqual(last().take(), ['^ack 0', 'from detach', 'from resume', '^bye {"code":4001,"reason":""}']);
  last().end(4001);
  assert.deepEqual(log, ['detach 1', 'resume 0 0', 'replayed', 'close 4001 ']);
});

test('no shared storage is ever touched', () => {
  const names = ['localStorage', 'sessionStorage', 'indexedDB', 'caches', 'BroadcastChannel'];
  const saved = names.map((name) => [name, Object.getOwnPropertyDescriptor(globalThis, name)]);
  const touched = [];
  for (const name of names)
    Object.defineProperty(globalThis, name, { configurable: true, get: () => touched.push(name) });
  const w = attached();
  w.last().receive('x');
  w.last().drop();
  w.last().resume();
  w.page.fire('pagehide', { persisted: false });
  for (const [name, descriptor] of saved) {
    delete globalThis[name];
    if (descriptor) Object.defineProperty(globalThis, name, descriptor);
  }
  assert.deepEqual(touched, []);
});
