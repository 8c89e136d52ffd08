import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attached, settle, world } from './helpers.js';

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
  const acks = w.last().takeControls('ack');
  assert.ok(acks.length >= parts.length - 1 && acks.length <= parts.length + 2, `${acks}`);
  assert.deepEqual([...new Set(acks.slice(0, -1))], ['^ack 40']);
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
    conn.pong(); // at last
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

// ---- resumed inside a message

const PARTIAL = { part_bytes: 4, partial: { down: 0, up: 0 } };
const GOES_ON = { part_bytes: 4096, partial: { down: 0, up: 0 } };

/** What was sent, parts as their bytes in text. */
const said = (conn) =>
  conn.take().map((data) => (typeof data === 'string' ? data : `[${new TextDecoder().decode(data)}]`));

test('a message goes on where its connection was cut, and is delivered once', () => {
  const w = attached({ first: PARTIAL });
  const parts = announce(w.last(), 'abcdefgh', 2);
  for (const part of parts.slice(0, 3)) w.last().receive(part);
  w.last().drop();
  assert.deepEqual([w.last().stated.received, w.last().held], ['0', '6']);
  w.last().resume({ ...PARTIAL, partial: { down: 6, up: 0 }, replay: 1 });
  w.last().control('parts', { bytes: 8, text: true, from: 6 });
  w.last().receive(parts[3]);
  assert.deepEqual(w.take(), ['detach 1', 'resume 1 0', 'abcdefgh', 'replayed']);
});

test('a message begins anew where the gateway says so, and nothing of it is stated any more', () => {
  const w = attached({ first: PARTIAL });
  w.last().receive(announce(w.last(), 'abcdefgh', 2)[0]);
  w.last().drop();
  w.last().resume({ ...PARTIAL, replay: 1 });
  w.last().drop();
  assert.equal(w.last().held, '0');
  w.last().resume({ ...PARTIAL, replay: 1 });
  for (const part of announce(w.last(), 'replaced', 4)) w.last().receive(part);
  assert.ok(w.take().includes('replaced'));
  w.last().drop();
  assert.deepEqual([w.last().stated.received, w.last().held], ['1', '0']);
});

/** A client that moves after the first part of a message, of which `came` parts come on the old connection meanwhile. */
async function moved(came, then = (/** @type {any} */ _old) => {}) {
  const w = attached({ first: PARTIAL });
  const old = w.last();
  const parts = announce(old, 'abcdefgh', 2);
  old.receive(parts[0]);
  old.control('move', { within_ms: 0 });
  await w.clock.advance(1);
  assert.equal(w.last().held, '2');
  for (const part of parts.slice(1, 1 + came)) old.receive(part);
  then(old);
  w.last().resume({ ...PARTIAL, partial: { down: 2, up: 0 }, replay: 1 });
  w.last().control('parts', { bytes: 8, text: true, from: 2 });
  return { ...w, parts };
}

test('an attempt that stated less than came meanwhile goes on from what it stated', async () => {
  const w = await moved(1);
  for (const part of w.parts.slice(1)) w.last().receive(part);
  assert.deepEqual(w.take(), ['resume 1 0', 'abcdefgh', 'replayed']);
});

test('a message that came whole on the older connection meanwhile is discarded on the new one', async () => {
  const w = await moved(3, (old) => old.receive(announce(old, 'the next', 2)[0]));
  for (const part of w.parts.slice(1)) w.last().receive(part);
  for (const part of announce(w.last(), 'the next', 4)) w.last().receive(part);
  assert.deepEqual(w.take(), ['abcdefgh', 'resume 1 0', 'replayed', 'the next']);
});

test('nothing is stated of a message that came whole on an older connection', async () => {
  const w = await moved(3);
  w.last().receive(w.parts[1]);
  w.last().drop();
  assert.equal(w.last().held, '0');
});

test('parts of another message, or from elsewhere, make the connection no good, and the next one states none', () => {
  for (const announced of [
    { bytes: 8, text: true },
    { bytes: 8, text: true, from: 3 },
    { bytes: 8, text: true, from: 5 },
    { bytes: 9, text: true, from: 4 },
    { bytes: 8, text: false, from: 4 },
    { bytes: 8, text: true, from: 8 },
    { bytes: 8, text: true, from: -1 },
  ]) {
    const w = attached({ first: PARTIAL });
    for (const part of announce(w.last(), 'abcdefgh', 2).slice(0, 2)) w.last().receive(part);
    w.last().drop();
    w.last().resume({ ...PARTIAL, partial: { down: 4, up: 0 }, replay: 1 });
    w.last().control('parts', announced);
    assert.ok(w.socket.detached, JSON.stringify(announced));
    const stated = announced.from === 8 || announced.from === -1 ? '4' : '0'; // unreadable: about nothing
    assert.equal(w.last().held, stated, JSON.stringify(announced));
  }
});

test('a hello that has more of a message than this side has said, or has sent, makes the connection no good', () => {
  for (const partial of [{ down: 3 }, { up: 1 }, { down: -1 }, null]) {
    const w = attached({ first: PARTIAL });
    w.last().receive(announce(w.last(), 'abcdefgh', 2)[0]);
    w.last().drop();
    const { length } = w.sockets;
    w.last().resume({ ...PARTIAL, partial });
    assert.ok(w.socket.detached && w.sockets.length === length, JSON.stringify(partial));
  }
});

test('parts are answered after 32 KiB, after 250 ms, and before each pong', async () => {
  const w = attached({ first: GOES_ON });
  const conn = w.last();
  const parts = announce(conn, new Uint8Array(64 * 1024), 4096);
  const next = (n) => parts.splice(0, n).forEach((part) => conn.receive(part));
  next(7);
  assert.deepEqual(said(conn), []);
  next(1);
  assert.deepEqual(said(conn), ['^part 32768']);
  next(1);
  await w.clock.advance(249);
  assert.deepEqual(said(conn), []);
  await w.clock.advance(1);
  assert.deepEqual(said(conn), ['^part 36864']);
  next(1);
  conn.control('ping', 'x');
  assert.deepEqual(said(conn), ['^part 40960', '^pong x']);
  conn.control('ping', 'y');
  assert.deepEqual(said(conn), ['^pong y']);
  await w.clock.advance(5_000);
  next(1); // a slow line: each at once
  assert.deepEqual(said(conn), ['^part 45056']);
  next(5);
  assert.deepEqual(said(conn), ['^ack 1'], 'the ack answers the last part');
});

test('a small message in parts costs its ack alone, 250 ms after its first part', async () => {
  const w = attached({ first: GOES_ON });
  await w.clock.advance(5_000);
  for (const part of announce(w.last(), new Uint8Array(5_000), 4096)) w.last().receive(part);
  await w.clock.advance(249);
  assert.deepEqual(said(w.last()), []);
  await w.clock.advance(1);
  assert.deepEqual(said(w.last()), ['^ack 1']);
});

test('a large message is sent in parts, of its type and bytes; what fits one part is sent as it is', () => {
  const w = attached({ first: PARTIAL });
  w.socket.send('abcd');
  w.socket.send('abcdefghi');
  w.socket.send(new TextEncoder().encode('binary'));
  w.socket.send('\x10abc');
  w.socket.send('\u20ac\u20ac');
  const announced = (bytes, text) => `^parts {"bytes":${bytes},"text":${text},"from":0}`;
  const raw = w.last().sent.map((data) => (typeof data === 'string' ? data : Buffer.from(data).toString('latin1')));
  assert.deepEqual(
    raw.map((data) => data.replaceAll('\x10', '^')),
    [
      'abcd',
      ...[announced(9, true), 'abcd', 'efgh', 'i'],
      ...[announced(6, false), 'bina', 'ry'],
      ...[announced(5, true), '^^ab', 'c'],
      ...[announced(6, true), '\xe2\x82\xac\xe2', '\x82\xac'],
    ],
  );
});

test('an older gateway gets no parts', () => {
  const w = attached({ first: { part_bytes: 4 } });
  w.socket.send('abcdefghi');
  assert.deepEqual(said(w.last()), ['abcdefghi']);
});

/** Answers parts; returns how many bytes of parts were sent since the last look. */
const sentBytes = (conn) =>
  conn.take().reduce((sum, data) => sum + (typeof data === 'string' ? 0 : data.byteLength), 0);

test('of a large message a window is sent at first; the rest, and bye, wait for its answers, and control messages do not', async () => {
  const w = attached({ first: GOES_ON });
  const conn = w.last();
  w.socket.send(new Uint8Array(10_000));
  w.socket.send('after it');
  await settle();
  w.socket.close();
  assert.equal(conn.sent.at(-1), '\x10ping 1', 'whose answer comes at once, behind that to the parts');
  assert.equal(sentBytes(conn), 8192);
  assert.equal(w.socket.bufferedAmount, 10_000 - 8192 + 8);
  conn.control('ping', 'x');
  assert.deepEqual(said(conn), ['^pong x']);
  conn.control('part', 1024);
  assert.equal(sentBytes(conn), 1024);
  conn.control('part', 8192);
  const rest = said(conn);
  assert.deepEqual(
    [rest[0].length, ...rest.slice(1)],
    [10_000 - 9216 + 2, 'after it', '^bye {"code":1000,"reason":""}'],
  );
});

test('bye waits for the rest of a large message', () => {
  const w = attached({ first: GOES_ON });
  w.socket.send(new Uint8Array(10_000));
  w.socket.close();
  assert.equal(w.last().take().length, 10);
  w.last().control('part', 8192);
  assert.equal(w.last().take().at(-1), '^bye {"code":1000,"reason":""}');
});

test('the window follows what the line takes in a second, so that nothing waits longer behind parts', async () => {
  for (const rate of [2, 12, 100, 2_000]) {
    // kB/s, with a round trip of 100 ms
    const w = attached({ first: GOES_ON });
    const conn = w.last();
    const bytes = Math.min(rate * 60_000, 16 << 20);
    let [line, held, most] = [0, 0, 0]; // bytes on the line, at the gateway; in ms of the line
    w.socket.send(new Uint8Array(bytes));
    let ms = 0;
    for (let answered = 0; held < bytes; ms += 50) {
      line += sentBytes(conn);
      if (ms > 30_000) most = Math.max(most, line / rate);
      const passed = Math.min(line, rate * 50);
      line -= passed;
      held += passed;
      if (ms % 250 === 0 || held - answered >= 32_768) {
        const n = (answered = held);
        w.clock.setTimeout(() => n < bytes && conn.control('part', n), 100);
      }
      await w.clock.advance(50);
    }
    const native = bytes / rate;
    assert.ok(ms <= 1.1 * native + 1_000, `${rate} kB/s: ${ms} ms, natively ${native}`);
    assert.ok(most <= 2_000, `${rate} kB/s: ${most} ms on the line`);
  }
});

test('the window does not become smaller while parts come, behind which answers wait', async () => {
  for (const both of [false, true]) {
    const w = attached({ first: GOES_ON });
    const conn = w.last();
    w.socket.send(new Uint8Array(100_000));
    assert.equal(sentBytes(conn), 8192);
    if (both) conn.control('parts', { bytes: 100_000 });
    await w.clock.advance(2_500);
    conn.control('part', 1024);
    conn.control('part', 8192);
    assert.equal(sentBytes(conn), both ? 8192 : 2048);
  }
});

test('a large message goes on at the byte that the gateway names', () => {
  const w = attached({ first: PARTIAL });
  w.socket.send('abcdefghijk');
  w.socket.send('next');
  w.last().drop();
  w.last().resume({ ...PARTIAL, partial: { down: 0, up: 6 } });
  assert.deepEqual(said(w.last()), ['^ack 0', '^parts {"bytes":11,"text":true,"from":6}', '[ghij]', '[k]', 'next']);
  w.last().drop();
  w.last().resume({ ...PARTIAL, received: 1 });
  assert.deepEqual(said(w.last()), ['^ack 0', 'next']);
});

test('a page that is left sends the rest of a large message before bye', () => {
  const w = attached({ first: GOES_ON });
  w.socket.send(new Uint8Array(100_000));
  assert.equal(sentBytes(w.last()), 8192);
  w.page.fire('pagehide', { persisted: false });
  const sent = w.last().take();
  assert.equal(sent.at(-1), '^bye {"code":1001,"reason":""}');
  assert.equal(
    sent.slice(0, -1).reduce((sum, data) => sum + data.byteLength, 0),
    100_000 - 8192,
  );
});

test('a page that is reloaded goes on with what it sends, and states nothing of what came in part', () => {
  const store = new Map();
  const storage = {
    getItem: (key) => store.get(key) ?? null,
    setItem: (key, text) => store.set(key, text),
    removeItem: (key) => store.delete(key),
  };
  const before = attached({ first: PARTIAL, options: { storage } });
  before.last().receive(announce(before.last(), 'abcdefgh', 2)[0]);
  before.socket.send('\u20acbcdefghijk');
  before.page.fire('pagehide', { persisted: false });
  const after = world({ options: { storage } });
  assert.deepEqual([after.last().stated.received, after.last().held], ['0', '0']);
  after.last().resume({ ...PARTIAL, partial: { down: 0, up: 4 } });
  assert.deepEqual(said(after.last()), [
    '^ack 0',
    '^parts {"bytes":13,"text":true,"from":4}',
    '[cdef]',
    '[ghij]',
    '[k]',
  ]);
});

test('answers to parts are progress: connections that bring no more than that are not given up', async () => {
  const w = attached({ first: PARTIAL });
  w.socket.send('x'.repeat(1_000));
  for (let up = 4; up < 400; up += 4) {
    w.last().control('part', up);
    w.last().drop();
    await w.clock.advance(600);
    w.last().resume({ ...PARTIAL, partial: { down: 0, up } });
  }
  assert.equal(w.socket.readyState, 1);
});
