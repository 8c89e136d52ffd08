import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attached, world } from './helpers.js';

// Large messages in parts, protocol section 3.1.

/** Announces a message and returns its parts. */
function announce(conn, message, size) {
  const bytes = typeof message === 'string' ? new TextEncoder().encode(message) : message;
  conn.control('parts', { bytes: bytes.length, text: typeof message === 'string', later: 'ignored' });
  const parts = [];
  for (let at = 0; at < bytes.length; at += size) parts.push(bytes.slice(at, at + size).buffer);
  return parts;
}

test('the parts of a message become one message, of its type, counted once', async () => {
  const w = attached();
  w.socket.binaryType = 'arraybuffer';
  for (const part of announce(w.last(), '\ufeffgr\u00fc\u00dfe \u{1f600}', 3)) w.last().receive(part); // also amid a character
  for (const part of announce(w.last(), new Uint8Array([1, 2, 3, 4, 5]), 2)) w.last().receive(part);
  for (const part of announce(w.last(), '\x10\x10escaped', 4)) w.last().receive(part);
  w.last().receive('whole');
  const [text, binary, escaped, whole] = w.take();
  assert.equal(text, '\ufeffgr\u00fc\u00dfe \u{1f600}');
  assert.deepEqual([...new Uint8Array(binary)], [1, 2, 3, 4, 5]);
  assert.deepEqual([escaped, whole], ['\x10escaped', 'whole']);
  await w.clock.advance(1_000);
  assert.equal(w.last().take().at(-1), '^ack 4');
});

test('control messages are taken between parts', () => {
  const w = attached();
  const [first, second] = announce(w.last(), 'abcd', 2);
  w.last().receive(first);
  w.last().control('ping', 'x');
  assert.deepEqual(w.last().take().slice(-1), ['^pong x']);
  w.last().receive(second);
  assert.deepEqual(w.take(), ['abcd']);
});

test('a message cut in the middle comes again whole, and is delivered once', () => {
  const w = attached();
  const [first] = announce(w.last(), 'abcd', 2);
  w.last().receive(first);
  w.last().drop();
  assert.equal(w.last().stated.received, '0');
  w.last().resume({ replay: 1 });
  for (const part of announce(w.last(), 'abcd', 3)) w.last().receive(part);
  assert.deepEqual(
    w.take().filter((entry) => entry === 'abcd'),
    ['abcd'],
  );
});

test('what is no part, is too much of it, or cannot be held, makes the connection no good', () => {
  for (const spoil of [
    (conn) => conn.receive(new ArrayBuffer(0)),
    (conn) => conn.receive(new ArrayBuffer(5)),
    (conn) => conn.control('parts', { bytes: Number.MAX_SAFE_INTEGER, text: true }),
    (conn) => conn.control('parts', { bytes: 0, text: true }),
    (conn) => conn.control('parts', { bytes: 5 }),
  ]) {
    const w = attached();
    const conn = w.last();
    conn.control('parts', { bytes: 4, text: false });
    spoil(conn);
    assert.ok(w.socket.detached, String(spoil));
    assert.deepEqual(conn.closed, []);
  }
});

test('a large message on a slow line is no silence: the client says once a second that it lives', async () => {
  const w = attached({ first: { answer_ms: 5_000 } });
  for (let i = 0; i < 40; i++) {
    w.last().receive('tick'); // lively
    await w.clock.advance(50);
  }
  w.last().take();
  const parts = announce(w.last(), new Uint8Array(30 * 4096), 4096);
  for (const part of parts) {
    await w.clock.advance(2_050); // 2 kB/s
    w.last().receive(part);
  }
  assert.equal(w.sockets.length, 1);
  assert.deepEqual(w.states.slice(-1), ['attached']);
  const acks = w
    .last()
    .take()
    .filter((said) => said.startsWith?.('^ack'));
  assert.ok(acks.length >= parts.length - 1 && acks.length <= parts.length + 2, `${acks}`);
  assert.ok(
    acks.slice(0, -1).every((said) => said === '^ack 40'),
    `${acks}`,
  );
});

test('a line that dies under a large message is noticed within 10 s, though its pings waited behind it', async () => {
  for (const lively of [false, true]) {
    const w = attached({ first: { answer_ms: 5_000 } });
    const conn = w.last();
    for (let i = 0; lively && i < 40; i++) {
      conn.receive('tick');
      await w.clock.advance(50);
    }
    conn.take();
    for (const part of announce(conn, new Uint8Array(60 * 4096), 4096).slice(0, 30)) {
      await w.clock.advance(2_500); // slower than parts should be: it pings
      conn.receive(part);
    }
    for (const ping of conn.take().filter((said) => said.startsWith?.('^ping'))) conn.control('pong', ping.slice(6)); // at last
    await w.clock.advance(10_000);
    assert.ok(w.socket.detached, `lively: ${lively}`);
  }
});

test('a line with a round trip of 8 s is not taken for dead', async () => {
  const w = world();
  const { clock } = w;
  const conn = w.last();
  await clock.advance(16_000); // TCP, then HTTP
  conn.attach({ answer_ms: 5_000 });
  /** Answers the pings of the last step, 8 s later. */
  const due = [];
  for (let t = 0; t < 120_000; t += 500) {
    for (const said of conn.take()) if (said.startsWith?.('^ping')) due.push([t + 8_000, said.slice(6)]);
    while (due[0]?.[0] <= t) conn.control('pong', due.shift()[1]);
    await clock.advance(500);
  }
  assert.equal(w.sockets.length, 1);
  assert.equal(w.socket.detached, false);
});
