import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attached, OFFER, resumeOffer, settle, TOKEN, world } from './helpers.js';

// The first connection: the offer, the hello, and a server that does not know reseat.v1.

test("the application's subprotocols are offered first, and nothing of a resume", () => {
  const { last } = world({ protocols: ['chat.v2', 'chat.v1'] });
  assert.deepEqual(last().protocols, ['chat.v2', 'chat.v1', ...OFFER]);
  assert.equal(last().url, 'ws://game.test/match/7');
});

test('entries of the application that begin with reseat. cannot break the offer', () => {
  const { last } = world({ protocols: ['reseat.v1', 'chat.v2', 'reseat.token.x'] });
  assert.deepEqual(last().protocols, ['chat.v2', ...OFFER]);
});

test('nothing is sent before hello, and open fires once, after it', async () => {
  const { socket, log, last, clock } = world({ protocols: ['chat.v2'] });
  last().open();
  await clock.advance(4_999);
  assert.deepEqual(last().sent, []);
  assert.deepEqual(log, []);
  assert.equal(socket.readyState, 0);
  last().hello({ protocol: 'chat.v2' });
  assert.deepEqual(log, ['open']);
  assert.equal(socket.readyState, 1);
  assert.equal(socket.protocol, 'chat.v2');
  assert.equal(socket.extensions, '');
  assert.equal(socket.session, 's1');
  assert.equal(socket.detached, false);
  assert.deepEqual(last().take(), ['^ack 0']);
});

test('a failed handshake is followed by one connection without the offer', () => {
  const { socket, log, last, sockets } = world({ protocols: ['chat.v2'] });
  last().drop();
  assert.equal(sockets.length, 2);
  assert.deepEqual(last().protocols, ['chat.v2']);
  assert.deepEqual(log, []);
  last().extensions = 'permessage-deflate';
  last().open('chat.v2');
  assert.deepEqual(log, ['open']);
  assert.equal(socket.protocol, 'chat.v2');
  assert.equal(socket.extensions, 'permessage-deflate');
  assert.equal(socket.session, null);
});

test('a handshake that chose no subprotocol has failed, also where the engine opens', async () => {
  const { log, last, sockets } = world({ protocols: ['chat.v2'] });
  last().open('');
  assert.equal(sockets.length, 2, 'at once');
  assert.deepEqual(sockets[0].closed, []);
  sockets[0].receive('welcome');
  last().open('');
  assert.deepEqual(log, ['open']);

  const w = attached();
  w.last().drop();
  const attempt = w.last();
  attempt.open('');
  assert.deepEqual(attempt.closed, []);
  await w.clock.advance(2_000);
  assert.notEqual(w.last(), attempt, 'a resume that found something else is tried again');
  assert.equal(w.last().stated.token, TOKEN);
});

test('towards a plain server it is an ordinary WebSocket', async () => {
  const { socket, log, last, sockets, clock } = world();
  last().drop();
  last().open('');
  socket.send('\x10not escaped');
  socket.send(new Uint8Array([1, 2]));
  last().receive('\x10not a control message');
  last().bufferedAmount = 7;
  assert.equal(socket.bufferedAmount, 7);
  await clock.advance(600_000); // no ack, no ping, no silence
  assert.deepEqual(last().sent, ['\x10not escaped', new Uint8Array([1, 2]).buffer]);
  socket.close(3001, 'enough');
  assert.deepEqual(last().closed, [3001, 'enough']);
  assert.equal(socket.readyState, 2);
  last().end(3005, 'server says so');
  assert.deepEqual(log, ['open', '\x10not a control message', 'close 3005 server says so']);
  assert.equal(socket.readyState, 3);
  assert.equal(sockets.length, 2);
});

test("a plain server's drop is an error and close 1006, and no resume", async () => {
  const { log, last, sockets, clock } = world();
  last().drop();
  last().open('');
  last().drop();
  await clock.advance(60_000);
  assert.deepEqual(log, ['open', 'error', 'close 1006  unclean']);
  assert.equal(sockets.length, 2);
});

test('a plain socket hands a Blob to its transport, which keeps its place, and a close without a code sends none', async () => {
  for (const [codes, closed] of [
    [[1000], [1000, '']],
    [[], []],
  ]) {
    const { socket, last } = world();
    last().drop();
    last().open('');
    socket.send(new Blob(['last words']));
    socket.close(...codes);
    assert.equal(await last().sent[0].text(), 'last words');
    assert.deepEqual(last().closed, closed);
  }
});

test('a first message that is no hello is never delivered, and its connection is closed unused, as one without a message in 5 s', async () => {
  for (const message of ['welcome', new ArrayBuffer(2), '\x10welcome now', '\x10', '\x10ping x', undefined]) {
    const { log, last, sockets, connectsAfter } = world();
    last().open();
    if (message === undefined) await connectsAfter(5_000);
    else last().receive(message);
    assert.equal(sockets.length, 2, JSON.stringify(message));
    assert.deepEqual([sockets[0].closed, sockets[0].sent, last().protocols], [[], [], []]);
    sockets[0].receive('more');
    last().open('');
    last().receive('welcome');
    assert.deepEqual(log, ['open', 'welcome']);
  }
});

test('a hello that waited in a frozen page is still read', async () => {
  const { log, last, sockets, clock } = world();
  last().open();
  clock.freeze(60_000);
  await clock.advance(0); // the overdue timer first, as it may be
  assert.equal(sockets.length, 1);
  last().hello();
  assert.deepEqual(log, ['open']);
});

test("a server that takes an application's subprotocol is used as it is", () => {
  const { socket, log, last, sockets } = world({ protocols: ['chat.v2'] });
  last().open('chat.v2');
  last().receive('welcome');
  assert.deepEqual(log, ['open', 'welcome']);
  assert.equal(sockets.length, 1);
  assert.equal(socket.protocol, 'chat.v2');
  const strict = world({ protocols: ['chat.v2'], options: { fallback: false } });
  strict.last().open('chat.v2');
  assert.deepEqual(strict.log, ['error', 'close 1006  unclean']);
});

const failsForGood = (setup, why) => {
  for (const fail of [(s) => s.drop(), (s) => (s.open(), s.receive('welcome'))]) {
    const { log, last, sockets } = world(setup);
    fail(last());
    assert.equal(sockets.length, 1, why);
    assert.deepEqual(log, ['error', 'close 1006  unclean'], why);
  }
};

test('fallback: false forbids the second connection', () => failsForGood({ options: { fallback: false } }, 'fallback'));

test('there is no fallback towards an origin that has sent a hello', () => {
  const gateways = new Set();
  world({ runtime: { gateways } }).last().attach();
  failsForGood({ url: 'ws://game.test/other', runtime: { gateways } }, 'same origin');
  const elsewhere = world({ url: 'wss://game.test/', runtime: { gateways } });
  elsewhere.last().drop();
  assert.equal(elsewhere.sockets.length, 2, 'another scheme is another origin');
});

test('there is no fallback towards the origin that served /reseat.js', () => {
  failsForGood({ runtime: { module: 'http://game.test/reseat.js' } }, 'http');
  failsForGood({ url: 'wss://game.test:8443/x', runtime: { module: 'https://game.test:8443/reseat.js?v=1' } }, 'https');
  for (const module of [
    'http://cdn.test/reseat.js',
    'https://game.test/reseat.js',
    'http://game.test/vendor/reseat.js',
    'file:///reseat.js',
    'nonsense',
  ]) {
    const { last, sockets } = world({ runtime: { module } });
    last().drop();
    assert.equal(sockets.length, 2, module);
  }
});

test('a first connection lost before its hello is error and 1006, without a second session', () => {
  for (const leave of [(s) => s.drop(), (s) => s.end(1000), (s) => s.end(1012, 'restart')]) {
    const { log, last, sockets } = world();
    last().open();
    leave(last());
    assert.deepEqual(log, ['error', 'close 1006  unclean']);
    assert.equal(sockets.length, 1);
  }
});

test('a hello that makes no sense ends the first connection, and is no reason for a plain one', () => {
  const bad = [
    'hello',
    'hello {',
    'hello []',
    'hello {"token":7}',
    'hello {"token":"a b"}',
    'hello {"token":"t","received":-1}',
    'hello {"token":"t","received":1}',
    'hello {"token":"t","lost":1.5}',
    'hello {"token":"t","replay":"1"}',
    'hello null',
    'hello {"token":"t","grace_ms":-1}',
    'hello {"token":"t","answer_ms":-1}',
  ];
  for (const text of bad) {
    const { log, last, sockets } = world();
    last().open();
    last().receive(`\x10${text}`);
    assert.deepEqual(log, ['error', 'close 1006  unclean'], text);
    assert.equal(sockets.length, 1, text);
  }
});

test('a close before the first hello gives its code', () => {
  const { log, last } = world({ options: { token: TOKEN } });
  last().verdict(4404, 'no session');
  assert.deepEqual(log, ['close 4404 no session']);
});

test('a first connection that is asked to come back has failed all the same', () => {
  const { log, last, sockets } = world({ options: { token: TOKEN } });
  last().open();
  last().control('close', { code: 4503, reason: 'draining', retry: true, retry_after_ms: 100 });
  assert.deepEqual(log, ['error', 'close 1006  unclean']);
  assert.equal(sockets.length, 1);
});

test('options.token: the first connection resumes with it and N = 0', async () => {
  for (const resumed of [false, true]) {
    const { log, last, sockets, clock, socket } = world({ protocols: 'chat.v2', options: { token: 'a.b.c' } });
    assert.deepEqual(last().protocols, ['chat.v2', ...resumeOffer('a.b.c')]);
    last().open();
    await clock.advance(15_000); // a resume waits longer
    assert.equal(sockets.length, 1);
    last().hello({ resumed, replay: 2, lost: 3 });
    assert.deepEqual(last().take(), ['^ack 3']);
    last().receive('four');
    last().receive('five');
    assert.deepEqual(log, ['open', 'four', 'five', 'replayed']);
    assert.equal(socket.readyState, 1);
  }
});

test('options.token: no connection without it is ever opened', async () => {
  const w = world({ options: { token: TOKEN } });
  w.last().drop();
  assert.deepEqual(w.log, ['error', 'close 1006  unclean']);
  assert.equal(w.sockets.length, 1);
  assert.throws(() => world({ options: { token: 'not a token' } }), { name: 'SyntaxError' });
});

test('close() while connecting: error and 1006, told after the call', async () => {
  for (const before of [() => {}, (s) => s.open(), (s) => s.drop()]) {
    const { socket, log, last, sockets } = world();
    before(last());
    socket.close();
    assert.equal(socket.readyState, 2);
    assert.deepEqual(log, []);
    await settle();
    assert.deepEqual(log, ['error', 'close 1006  unclean']);
    assert.equal(socket.readyState, 3);
    for (const s of sockets) {
      if (s.readyState === 0) s.open();
      if (s.readyState === 1) s.hello();
    }
    assert.deepEqual(last().closed, [], 'at the latest after the hello');
    assert.deepEqual(log, ['error', 'close 1006  unclean']);
  }
});

test("what the transport throws at the first connection is the application's to see", () => {
  const { Transport, surroundings } = world();
  Transport.refuse = true;
  assert.throws(() => world({ options: { WebSocket: Transport, runtime: surroundings } }), { name: 'SecurityError' });
});

test('a transport with handler attributes alone will do', () => {
  let made;
  class Bare {
    sent = [];
    constructor() {
      made = this;
    }
    send(data) {
      this.sent.push(data);
    }
    close() {}
  }
  const { log } = world({ options: { WebSocket: Bare } });
  made.onopen({});
  made.onmessage({ data: '\x10hello {"session":"s","token":"t"}' });
  made.onmessage({ data: 'x' });
  assert.deepEqual(log, ['open', 'x']);
  assert.deepEqual(made.sent, ['\x10ack 0']);
});
