import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attached, FIREFOX, settle, until, world } from './helpers.js';

// close() by the application, and the page that is left.

const bye = (code, reason = '') => `^bye ${JSON.stringify({ code, reason })}`;

test('close says bye after the data before it, and close fires when the gateway answers', async () => {
  const { socket, last, log, clock } = attached();
  socket.send('last words');
  socket.close(4001, 'left');
  assert.equal(socket.readyState, 2);
  assert.deepEqual(last().take(), ['last words', bye(4001, 'left')]);
  assert.equal(last().closed, null, 'the gateway closes');
  socket.close(3000);
  await settle();
  socket.send('too late');
  assert.equal(socket.bufferedAmount, 8);
  await settle();
  assert.deepEqual(log, []);
  last().end(4001, 'left');
  assert.deepEqual(log, ['close 4001 left']);
  assert.equal(socket.readyState, 3);
  assert.equal(clock.pending, 0);
});

test('without a code it is 1005, sent as 1000 to a gateway without answer_ms, and with a reason 1000', () => {
  for (const [first, said, heard, reason] of [
    [{ answer_ms: 5000 }, 1005, 1005],
    [{ answer_ms: 0 }, 1005, 1005],
    [{}, 1000, 1005],
    [{ answer_ms: 5000 }, 1000, 1000, 'left'],
  ]) {
    const { socket, last, log } = attached({ first });
    socket.close(undefined, reason);
    assert.deepEqual(last().take(), [bye(said, reason)]);
    last().end(said, reason);
    assert.deepEqual(log, [`close ${heard} ${reason ?? ''}`]);
  }
});

test('bye waits for the window', () => {
  const { socket, last } = attached({ first: { limits: { unacked_messages: 1, unacked_bytes: 100 } } });
  socket.send('1');
  socket.send('2');
  socket.close();
  assert.deepEqual(last().take(), ['1']);
  last().control('ack', 1);
  assert.deepEqual(last().take(), ['2', bye(1000)]);
});

test('bye waits for a Blob that is being read', async () => {
  const { socket, last } = attached();
  socket.send(new Blob(['x']));
  socket.close();
  assert.deepEqual(last().take(), []);
  await until(() => last().sent.length === 2);
  assert.deepEqual(last().take()[1], bye(1000));
});

test('messages that come while closing are counted, and not delivered', () => {
  const { socket, last, log } = attached();
  socket.close(4001);
  last().receive('late');
  assert.deepEqual(log, []);
  last().drop();
  assert.equal(last().stated.received, '1');
});

test('a connection that ends before the handshake is done: resume, what is unacked, bye', () => {
  for (const lose of [(s) => s.drop(), (s) => s.end(1005), (s) => s.end(1001), (s) => s.end(4002)]) {
    const { socket, last, log } = attached();
    socket.send('unacked');
    socket.close(4001, 'left');
    lose(last());
    assert.equal(socket.readyState, 2);
    last().resume();
    assert.deepEqual(last().take(), ['^ack 0', 'unacked', bye(4001, 'left')]);
    last().end(4001);
    assert.deepEqual(
      log.filter((line) => line.startsWith('close')),
      ['close 4001 left'],
    );
    assert.ok(!log.includes('error'));
  }
});

test('a refusal with retry: false counts as done', () => {
  for (const code of [4404, 4410, 4401, 4408]) {
    const { socket, last, log } = attached();
    socket.close(4001, 'left');
    last().drop();
    last().open();
    last().control('close', { code, reason: 'refused', retry: false });
    assert.deepEqual(log.slice(-1), ['close 4001 left']);
    assert.ok(!log.includes('error'));
  }
});

test("an end or close that crosses the bye counts as done; the game server's end is reported, as by WebSocket", () => {
  for (const [verb, argument, told] of [
    ['end', { code: 3007, reason: 'match over' }, 'close 3007 match over'],
    ['close', { code: 4410, reason: 'x', retry: false }, 'close 4001 left'],
  ]) {
    const { socket, last, log } = attached();
    socket.close(4001, 'left');
    last().control(verb, argument);
    last().end(argument.code);
    assert.deepEqual(log, [told]);
  }
});

test("close fires with the application's code at the latest when the grace period is over", async () => {
  const before = attached();
  before.last().drop();
  await before.clock.advance(20_000);
  before.socket.close(4001, 'left');
  await before.clock.advance(9_999);
  assert.equal(before.socket.readyState, 2);
  await before.clock.advance(1);
  assert.deepEqual(before.log.slice(-1), ['close 4001 left']);

  const after = attached();
  after.socket.close(4001, 'left');
  after.last().drop();
  await after.clock.advance(30_000);
  assert.deepEqual(after.log.slice(-1), ['close 4001 left']);
  assert.ok(!after.log.includes('error'));
  assert.equal(after.clock.pending, 0);
});

test('a bye that nobody answers is taken up again on another connection', async () => {
  const { socket, last, sockets, clock } = attached();
  socket.close(4001);
  for (let t = 0; t < 4; t++) {
    last().control('ping', 'x');
    await clock.advance(10_000);
  }
  assert.equal(sockets.length, 2);
});

test('nothing is acked after bye, pings are answered', async () => {
  const { socket, last, clock } = attached();
  last().receive('x');
  socket.close();
  last().take();
  await clock.advance(1_500);
  last().control('ping', '1');
  assert.deepEqual(last().take(), ['^pong 1']);
});

test('a page that is left for good says bye 1001, or as the application has, with what may still be sent', () => {
  for (const [close, code, reason] of [
    [() => {}, 1001, ''],
    [(socket) => socket.close(4001, 'own'), 4001, 'own'],
  ]) {
    const w = attached({ first: { limits: { unacked_messages: 1, unacked_bytes: 100 } } });
    w.socket.send('1');
    w.socket.send('2');
    close(w.socket);
    w.page.fire('pagehide', { persisted: false });
    assert.deepEqual(w.last().take(), ['1', bye(code, reason)]);
    w.last().end(code);
    assert.deepEqual(w.log, [`close ${code} ${reason}`]);
  }
});

test('a page that goes into the cache says no bye, and resumes when it is shown', async () => {
  const w = attached();
  w.page.fire('pagehide', { persisted: true });
  assert.deepEqual(w.last().take(), []);
  w.last().drop(); // browsers cut the connections of a cached page
  assert.equal(w.socket.readyState, 1);
  w.clock.freeze(20_000);
  w.page.fire('pageshow', { persisted: true });
  w.last().resume();
  assert.equal(w.socket.detached, false);
});

test('a page left while detached says bye should an attempt still come through', () => {
  const w = attached();
  w.last().drop();
  w.page.fire('pagehide', { persisted: false });
  w.last().resume();
  assert.deepEqual(w.last().take(), ['^ack 0', bye(1001)]);
});

test('a page left in other states does nothing of its own', () => {
  const w = world();
  w.page.fire('pagehide', { persisted: false });
  assert.equal(w.socket.readyState, 0);
  w.last().drop();
  w.last().open('');
  w.page.fire('pagehide', { persisted: false });
  assert.equal(w.socket.readyState, 1, "a plain connection is the browser's to close");
});

test('Firefox closes sockets before pagehide: its pages say in beforeunload that they may be left', async () => {
  const w = attached({ runtime: { navigator: { onLine: true, userAgent: FIREFOX } } });
  w.page.fire('beforeunload');
  assert.deepEqual(w.last().take(), ['^leaving']);
  w.last().receive('on'); // the page stays
  assert.equal(w.socket.readyState, 1);

  w.page.fire('beforeunload');
  w.last().end(1001);
  assert.equal(w.sockets.length, 1, 'nobody might hear the answer to a resume now');
  await w.clock.advance(1_000);
  assert.equal(w.sockets.length, 2, 'the page has stayed');

  const others = attached();
  others.page.fire('beforeunload');
  assert.deepEqual(others.last().sent, [], 'other engines let a page say bye');

  const detached = attached({ runtime: { navigator: { onLine: true, userAgent: FIREFOX } } });
  detached.last().drop();
  detached.page.fire('beforeunload');
  assert.deepEqual(detached.last().sent, []);
});
