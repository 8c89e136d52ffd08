import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attached, settle, until } from './helpers.js';

// Exactly once and in order: numbers, acks, the window, the escape.

const receive = (socket, n, text = 'x') => {
  for (let i = 0; i < n; i++) socket.receive(text);
};

test('messages are acked 1 second after the oldest at the latest', async () => {
  const { last, clock } = attached();
  last().receive('a');
  await clock.advance(300);
  last().receive('b');
  assert.deepEqual(last().take(), []);
  await clock.advance(700);
  assert.deepEqual(last().take(), ['^ack 2']);
  await clock.advance(10_000);
  assert.deepEqual(last().take(), [], 'nothing new, nothing to ack');
});

test('an ack that has waited for half a second goes with what is sent anyway', async () => {
  const { socket, last, clock } = attached();
  last().receive('a');
  await clock.advance(400);
  socket.send('early');
  assert.deepEqual(last().take(), ['early']);
  await clock.advance(200);
  last().receive('b');
  socket.send('later');
  socket.send('more');
  assert.deepEqual(last().take(), ['^ack 2', 'later', 'more']);
  await clock.advance(10_000);
  assert.deepEqual(last().take(), [], 'nothing new, nothing to ack');
});

test('messages are acked after 32 at the latest', () => {
  const { last } = attached();
  receive(last(), 31);
  assert.deepEqual(last().take(), []);
  receive(last(), 1);
  assert.deepEqual(last().take(), ['^ack 32']);
  receive(last(), 31);
  assert.deepEqual(last().take(), []);
  receive(last(), 1);
  assert.deepEqual(last().take(), ['^ack 64']);
});

test('messages are acked after 64 KiB at the latest, in bytes of UTF-8', () => {
  const { last } = attached();
  last().receive(new ArrayBuffer(65_535));
  assert.deepEqual(last().take(), []);
  last().receive('!');
  assert.deepEqual(last().take(), ['^ack 2']);
  last().receive('\u20ac'.repeat(21_845)); // 3 bytes each: 65,535
  assert.deepEqual(last().take(), []);
  last().receive('!');
  assert.deepEqual(last().take(), ['^ack 4']);
});

test('a ping is answered with its own argument, after the ack that is owed', () => {
  const { last } = attached();
  last().receive('a');
  last().control('ping', '17 x');
  assert.deepEqual(last().take(), ['^ack 1', '^pong 17 x']);
  last().control('ping');
  assert.deepEqual(last().take(), ['^pong']);
});

test('an ack follows the event that handed the message over', () => {
  const { socket, last } = attached();
  socket.addEventListener('message', () => assert.deepEqual(last().sent, []), { once: true });
  receive(last(), 31);
  socket.addEventListener('message', () => assert.deepEqual(last().sent, []), { once: true });
  receive(last(), 1);
  assert.deepEqual(last().take(), ['^ack 32']);
});

test('after hello: ack, then what the gateway lacks, in order, then new messages', () => {
  const { socket, last, sockets } = attached();
  for (const text of ['1', '2', '3', '4']) socket.send(text);
  last().receive('down');
  last().drop();
  socket.send('5');
  assert.deepEqual(sockets[1].stated, { token: 'h.p.s', received: '1' });
  last().open();
  assert.deepEqual(last().sent, []);
  last().hello({ resumed: true, received: 2 });
  socket.send('6');
  assert.deepEqual(last().take(), ['^ack 1', '3', '4', '5', '6']);
});

test('a resume that nobody acked counts from the same N, and its newest token', () => {
  const { last, socket } = attached();
  last().control('token', { token: 'newer.t' });
  last().receive('a');
  last().drop();
  assert.deepEqual(last().stated, { token: 'newer.t', received: '1' });
  last().resume({ token: 'second.t' });
  last().drop();
  assert.deepEqual(last().stated, { token: 'second.t', received: '1' });
  assert.equal(socket.readyState, 1);
});

test('repeated messages are thrown away, and acked all the same', async () => {
  const { last, log, sockets, clock } = attached();
  last().control('move', { within_ms: 1000 });
  await clock.advance(500);
  sockets[0].receive('1'); // after N = 0 was stated on the new connection
  sockets[0].receive('2');
  assert.equal(sockets[1].stated.received, '0');
  sockets[1].resume({ replay: 3 });
  assert.deepEqual(sockets[1].take(), ['^ack 0']);
  for (const text of ['1', '2', '3']) sockets[1].receive(text);
  assert.deepEqual(log, ['1', '2', 'resume 3 0', '3', 'replayed']);
  sockets[1].control('ping');
  assert.deepEqual(sockets[1].take(), ['^ack 3', '^pong']);
});

test('an ack never names more than N + lost + what came on this connection', async () => {
  const { last, sockets, clock } = attached();
  last().control('move', { within_ms: 1000 });
  await clock.advance(500);
  receive(sockets[0], 5);
  sockets[1].resume({ replay: 5 });
  sockets[1].take();
  receive(sockets[1], 2);
  sockets[1].control('ping');
  assert.deepEqual(sockets[1].take(), ['^ack 2', '^pong']);
});

test('while a resume is under way that stated N, an older connection acks nothing beyond N', async () => {
  const { last, sockets, clock } = attached();
  last().receive('1');
  last().control('move', { within_ms: 0 });
  await clock.advance(0);
  assert.equal(sockets[1].stated.received, '1');
  const old = sockets[0];
  receive(old, 40);
  await clock.advance(1_500);
  old.control('ping', 'p');
  assert.deepEqual(old.take(), ['^ack 1', '^pong p'], 'N itself may be acked');
  sockets[1].drop();
  assert.deepEqual(old.take(), ['^ack 41'], 'the attempt has ended');
});

test('lost messages are skipped in the count', () => {
  const { last, log } = attached();
  receive(last(), 2);
  last().drop();
  last().resume({ lost: 5, replay: 1 });
  assert.deepEqual(last().take(), ['^ack 7']);
  last().receive('eight');
  last().drop();
  assert.equal(last().stated.received, '8');
  assert.deepEqual(log.slice(3), ['resume 1 5', 'eight', 'replayed', 'detach 1']);
});

test('what was lost stays skipped where the connection brings nothing more', () => {
  const { last } = attached();
  receive(last(), 2);
  last().drop();
  last().resume({ lost: 5, replay: 1 });
  last().drop();
  assert.equal(last().stated.received, '7', 'the gateway has forgotten them: less would be refused with 4408');
});

test('DLE is doubled on the way out and taken off on the way in, in text alone', () => {
  const { socket, last, log } = attached();
  for (const data of ['\x10', '\x10ack 9', '\x10\x10', 'a\x10']) socket.send(data);
  const binary = new Uint8Array([0x10, 0x61]);
  socket.send(binary);
  assert.deepEqual(last().sent.slice(0, 4), ['\x10\x10', '\x10\x10ack 9', '\x10\x10\x10', 'a\x10']);
  assert.deepEqual(new Uint8Array(last().sent[4]), binary);
  for (const data of last().sent.slice(0, 4)) last().receive(data);
  socket.binaryType = 'arraybuffer';
  last().receive(binary.buffer);
  assert.deepEqual(log.slice(0, 4), ['\x10', '\x10ack 9', '\x10\x10', 'a\x10']);
  assert.deepEqual(new Uint8Array(log[4]), binary);
});

const small = (limits) => ({
  first: { limits: { message_bytes: 1000, unacked_messages: 1000, unacked_bytes: 1000, ...limits } },
});

test('no more than unacked_messages are out at once; ack frees them, hello.received does not', async () => {
  const { socket, last } = attached(small({ unacked_messages: 2 }));
  for (const text of ['1', '2', '3', '4']) socket.send(text);
  assert.deepEqual(last().take(), ['1', '2']);
  await settle();
  assert.equal(socket.bufferedAmount, 2);
  last().drop();
  last().resume({ received: 2, limits: { unacked_messages: 2, unacked_bytes: 1000 } });
  assert.deepEqual(last().take(), ['^ack 0'], 'received, not acked: the window is still full');
  last().control('ack', 1);
  assert.deepEqual(last().take(), ['3']);
  last().control('ack', 1);
  last().control('ack', 0);
  assert.deepEqual(last().take(), [], 'an ack below an earlier one is ignored');
  last().control('ack', 3);
  assert.deepEqual(last().take(), ['4']);
  assert.equal(socket.bufferedAmount, 0);
});

test('no more than unacked_bytes are out at once, an escaping DLE not counted; one alone always fits', () => {
  const { socket, last } = attached(small({ unacked_bytes: 10 }));
  socket.send('\x1023456');
  socket.send('\u20ac'); // 3 bytes
  socket.send('\u20ac');
  assert.deepEqual(last().take(), ['^^23456', '\u20ac']);
  last().control('ack', 1);
  assert.deepEqual(last().take(), ['\u20ac']);
  last().control('ack', 3);
  socket.send('x'.repeat(11));
  socket.send('y');
  assert.deepEqual(last().take(), ['x'.repeat(11)]);
  last().control('ack', 4);
  assert.deepEqual(last().take(), ['y']);
});

test('what the gateway holds and has not acked still counts in bytes', () => {
  const limits = { unacked_messages: 100, unacked_bytes: 10 };
  const { socket, last } = attached(small(limits));
  socket.send('six...');
  last().drop();
  last().resume({ received: 1, limits });
  socket.send('seven..');
  assert.deepEqual(last().take(), ['^ack 0']);
  last().control('ack', 1);
  assert.deepEqual(last().take(), ['seven..']);
});

test('bufferedAmount is what no connection was given yet', async () => {
  const { socket, last } = attached();
  socket.send('four');
  assert.equal(socket.bufferedAmount, 4, 'as native: in the same turn nothing has left');
  socket.send('five!');
  assert.equal(socket.bufferedAmount, 9);
  await settle();
  assert.equal(socket.bufferedAmount, 0);
  last().drop();
  assert.equal(socket.bufferedAmount, 0, 'it was given to the old one');
  socket.send('\u20acuro');
  socket.send(new ArrayBuffer(10));
  socket.send(new Blob(['xy']));
  assert.equal(socket.bufferedAmount, 18);
  last().resume({ received: 2 });
  await until(() => socket.bufferedAmount === 0);
});

test('a Blob keeps its place in the order', async () => {
  const { socket, last } = attached();
  socket.send('1');
  socket.send(new Blob(['2']));
  socket.send('3');
  socket.send(new File(['4'], 'four'));
  assert.deepEqual(last().take(), ['1']);
  assert.equal(socket.bufferedAmount, 4);
  await until(() => last().sent.length === 3);
  assert.deepEqual(last().takeData(), ['2', '3', '4']);
  assert.equal(socket.bufferedAmount, 0);
});

test('a Blob that cannot be read ends the session, and the gateway gets a bye', async () => {
  const { socket, last, log } = attached();
  const blob = Object.assign(new Blob(['x']), { arrayBuffer: () => Promise.reject(new Error('gone')) });
  socket.send(blob);
  await settle();
  assert.deepEqual(log, ['error', 'close 1006  unclean']);
  assert.deepEqual(last().take(), ['^bye {"code":1001,"reason":"unreadable Blob"}']);
});

test('the caller may change its buffer after send(), also before a resend', () => {
  const { socket, last } = attached();
  const bytes = new Uint8Array([1, 2, 3, 4]);
  socket.send(bytes.subarray(1, 3));
  socket.send(bytes.buffer);
  socket.send(new DataView(bytes.buffer, 3));
  bytes.fill(9);
  last().drop();
  last().resume();
  assert.deepEqual(
    last()
      .take()
      .slice(1)
      .map((data) => [...new Uint8Array(data)]),
    [[2, 3], [1, 2, 3, 4], [4]],
  );
});

test('what a gateway must not send breaks the connection, never the application', () => {
  const bad = [
    '\x10',
    '\x10Hello',
    '\x10ack',
    '\x10ack -1',
    '\x10ack 1x',
    '\x10ack 12345678901234567',
    '\x10ack 2',
    '\x10ack  0',
    '\x10ack 0 ',
    '\x10grace soon',
    '\x10token {"token":7}',
    '\x10token',
    '\x10close',
    '\x10close {"code":"x"}',
    '\x10end 1000',
    '\x10move {"within_ms":-5}',
    '\x10bye {"code":1000}',
    '\x10abcdefghijklmnopq',
    '\x10 ack 0',
    '\x10ping ',
    `\x10ping ${'x'.repeat(33)}`,
    '\x10ack\n0',
    '\x10hello {"session":"s1","token":"t"}',
  ];
  for (const text of bad) {
    const { socket, last, log, sockets } = attached();
    socket.send('kept');
    last().receive(text);
    assert.equal(sockets.length, 2, `${JSON.stringify(text)}: resumed on another connection`);
    assert.deepEqual(sockets[0].closed, []);
    last().resume({ token: 'next.t' });
    assert.deepEqual(last().take(), ['^ack 0', 'kept']);
    assert.deepEqual(log, ['detach 1', 'resume 0 0', 'replayed']);
  }
});

test('an ack of a message that waits for the window, and was not sent, breaks the connection', () => {
  const limits = { message_bytes: 1000, unacked_messages: 2, unacked_bytes: 1000 };
  const { socket, last, sockets } = attached({ first: { limits } });
  for (const text of ['one', 'two', 'three', 'four']) socket.send(text);
  assert.deepEqual(last().take(), ['one', 'two']);
  last().control('ack', 3);
  assert.equal(sockets.length, 2, 'resumed on another connection');
  last().resume({ limits });
  assert.deepEqual(last().take(), ['^ack 0', 'one', 'two']);
  last().control('ack', 2);
  assert.deepEqual(last().take(), ['three', 'four']);
});

test('unknown verbs and members are ignored', () => {
  const { last, log, sockets } = attached();
  for (const text of [
    '\x10dance',
    '\x10dance {"x":',
    '\x10constructor',
    '\x10proto',
    '\x10pong',
    '\x10pong x',
    '\x10token {"token":"t2","colour":"red"}',
    '\x10grace 5',
  ])
    last().receive(text);
  last().receive('data');
  assert.deepEqual(log, ['data']);
  assert.equal(sockets.length, 1);
});

test("a resume's hello that cannot be ends that attempt, and another follows", async () => {
  const w = attached();
  w.socket.send('1');
  w.socket.send('2');
  w.last().control('ack', 1);
  w.last().drop();
  const bad = [{ received: 0 }, { received: 3 }, { session: 'other' }, { token: '' }];
  for (const members of bad) {
    w.last().resume({ received: 1, ...members });
    assert.deepEqual(w.last().take(), [], JSON.stringify(members));
    await w.clock.advance(2_500);
  }
  w.last().resume({ received: 1 });
  assert.deepEqual(w.last().take(), ['^ack 0', '2']);
  assert.equal(w.sockets.length, 2 + bad.length);
});

test('data before hello breaks a resume, and is not delivered', async () => {
  const { last, log, clock, sockets } = attached();
  last().drop();
  last().open();
  last().control('dance'); // may be anything
  last().receive('data');
  await clock.advance(500);
  assert.equal(sockets.length, 3);
  last().resume();
  assert.deepEqual(log, ['detach 1', 'detach 2', 'resume 0 0', 'replayed']);
});

test('after a new hello nothing is taken from an older connection', async () => {
  const { last, log, sockets, clock } = attached();
  last().control('move', { within_ms: 0 });
  await clock.advance(0);
  last().resume({ token: 'new.t' });
  const old = sockets[0];
  assert.deepEqual(old.closed, []);
  old.take();
  old.receive('data');
  old.control('token', { token: 'old.t' });
  old.control('ping', 'p');
  old.control('end', { code: 1000, reason: '' });
  old.control('close', { code: 4409, retry: false });
  old.end(4409);
  assert.deepEqual(log, ['resume 0 0', 'replayed']);
  assert.deepEqual(old.take(), []);
  last().drop();
  assert.deepEqual(last().stated, { token: 'new.t', received: '0' });
});

test('each handshake says what is settled of the own messages, so that another node can go on with a durable session', async () => {
  const w = attached();
  w.socket.send('a');
  w.socket.send('b');
  w.last().control('ack', 1);
  w.last().drop();
  w.socket.send('c'); // given to no connection yet
  assert.deepEqual(w.last().settled, [1, 2]);
  w.last().resume({ received: 2 });
  w.last().drop();
  assert.deepEqual(w.last().settled, [2, 3], 'hello.received settles, too');
});
