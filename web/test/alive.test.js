import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attached } from './helpers.js';

// Is the connection alive? Silence, sleep, and the life of the page.

test('silence for 2 x heartbeat is death; twice as long for each connection in a row that ended so', async () => {
  const w = attached({ first: { grace_ms: 1_000_000 } });
  let count = 1;
  for (const limit of [30_000, 60_000, 120_000]) {
    await w.clock.advance(limit - 1);
    assert.equal(w.sockets.length, count);
    await w.clock.advance(1);
    assert.equal(w.sockets.length, ++count, `after ${limit}`);
    assert.deepEqual(w.sockets.at(-2).closed, []);
    w.last().resume({ grace_ms: 1_000_000 });
  }
  w.last().drop(); // ended in another way: the row is broken
  w.last().resume({ grace_ms: 1_000_000 });
  count = w.sockets.length;
  await w.clock.advance(30_000);
  assert.equal(w.sockets.length, count + 1);
});

test('any message breaks the silence', async () => {
  const w = attached();
  for (const say of [
    (s) => s.receive('x'),
    (s) => s.control('ping', '1'),
    (s) => s.control('dance'),
    (s) => s.control('ack', 0),
  ]) {
    await w.clock.advance(29_999);
    say(w.last());
  }
  await w.clock.advance(29_999);
  assert.equal(w.sockets.length, 1);
});

test('when the page or the network comes back: a ping, and 2 s for its answer', async () => {
  for (const back of [
    (p) => p.fire('online'),
    (p) => p.fire('pageshow', { persisted: true }),
    (p) => p.show('visible'),
    (p) => p.document.dispatchEvent(new Event('resume')),
  ]) {
    const w = attached();
    back(w.page);
    const [ping] = w.last().take();
    assert.match(ping, /^\^ping \S{1,32}$/);
    await w.clock.advance(500); // a round trip; four are waited for where that is longer
    w.last().control('pong', ping.slice('^ping '.length));
    await w.clock.advance(10_000);
    assert.equal(w.sockets.length, 1);
    w.last().take();
    back(w.page);
    await w.clock.advance(1_000);
    back(w.page);
    assert.equal(w.last().take().length, 1, 'one ping at a time');
    await w.connectsAfter(1_000, 'resumed at once');
    assert.deepEqual(w.sockets[0].closed, []);
  }
});

test('messages that waited in the page are no answer, and give the answer behind them more time', async () => {
  const w = attached();
  w.page.fire('online');
  const [first] = w.last().take();
  w.clock.freeze(10_000);
  w.page.show('visible');
  w.last().take();
  w.last().receive('came before the page slept');
  w.last().control('pong', first.slice('^ping '.length)); // so did the answer to the older ping
  await w.clock.advance(1_999);
  w.last().receive('one more');
  await w.connectsAfter(2_000);
});

test('a page that is hidden or frozen acks what it owes', () => {
  for (const leave of [
    (p) => p.show('hidden'),
    (p) => p.fire('pagehide', { persisted: true }),
    (p) => p.document.dispatchEvent(new Event('freeze')),
  ]) {
    const w = attached();
    w.last().receive('x');
    leave(w.page);
    assert.deepEqual(w.last().take(), ['^ack 1']);
  }
});

test('coming back makes a waiting client try at once', async () => {
  for (const back of [(p) => p.fire('online'), (p) => p.fire('pageshow'), (p) => p.show('visible')]) {
    const w = attached();
    w.last().drop();
    w.last().drop();
    assert.equal(w.sockets.length, 2);
    back(w.page);
    assert.equal(w.sockets.length, 3);
  }
});

test('an attempt that hangs since before the page came back gets its 4 s, and no more', async () => {
  const w = attached();
  w.last().drop();
  await w.clock.advance(1_000);
  w.page.show('visible');
  await w.clock.advance(2_999);
  assert.equal(w.last().closed, null);
  await w.clock.advance(1);
  assert.deepEqual(w.sockets[1].closed, []);
});

test('an offline browser spends no tries, comes back at online, and is not believed for ever', async () => {
  const w = attached();
  w.page.navigator.onLine = false;
  w.last().drop();
  assert.deepEqual(w.log, ['detach 1']);
  await w.connectsAfter(10_000, 'one attempt in 10 s: loopback works offline');
  w.last().drop();
  await w.clock.advance(5_000);
  assert.equal(w.sockets.length, 2);
  w.page.navigator.onLine = true;
  w.page.fire('online');
  assert.equal(w.sockets.length, 3);
});

test('an offline browser makes its one attempt where the time is over before the pause', async () => {
  const w = attached({ first: { grace_ms: 1_000, heartbeat_ms: 1_000 }, options: { giveUpAfter: 0 } });
  w.page.navigator.onLine = false;
  w.last().drop();
  await w.connectsAfter(3_000, 'grace period and twice the heartbeat are over');
  assert.equal(w.socket.readyState, 1);
  w.last().drop();
  await w.clock.advance(0);
  assert.equal(w.socket.readyState, 3);
  assert.equal(w.sockets.length, 2, 'one attempt and no more');
});

test('an offline browser whose time is over before the pacing pause makes its one attempt nevertheless', async () => {
  const grace = { grace_ms: 100, heartbeat_ms: 1 };
  const w = attached({ first: grace, random: () => 0.5, options: { giveUpAfter: 0 } });
  for (let i = 0; i < 4; i++) {
    // connections that come to nothing, the fifth drop is followed by a pause of 500 ms
    w.last().drop();
    w.last().resume({ ...grace });
  }
  w.page.navigator.onLine = false;
  w.last().drop();
  await w.connectsAfter(102, 'at the end of the grace period and twice the heartbeat');
  w.last().drop();
  await w.clock.advance(0);
  assert.equal(w.socket.readyState, 3);
});

test('a page thawed after the time was over tries once more before it gives up', async () => {
  for (const machine of [false, true]) {
    const w = attached();
    w.last().drop();
    w.last().drop();
    w.clock.freeze(3_600_000, { machine });
    await w.clock.advance(0); // frozen: overdue timers; machine: none is
    if (machine) w.page.show('visible');
    const attempt = w.last();
    assert.equal(attempt.readyState, 0, 'an attempt is under way');
    await w.clock.advance(3_999);
    assert.equal(w.socket.readyState, 1);
    attempt.resume();
    assert.equal(w.socket.detached, false);
  }
});

test('when that attempt fails, or is refused, it is over', async () => {
  for (const fail of [(s) => s.drop(), () => {}]) {
    const w = attached();
    w.last().drop();
    w.last().drop();
    w.clock.freeze(3_600_000);
    await w.clock.advance(0);
    fail(w.last());
    await w.clock.advance(10_000);
    assert.deepEqual(w.log.slice(-2), ['error', 'close 1006  unclean']);
  }
});

test('an attempt that slept is abandoned for a new one', async () => {
  const w = attached();
  w.last().drop();
  w.clock.freeze(300_000);
  w.page.show('visible');
  assert.equal(w.sockets.length, 3);
  assert.deepEqual(w.sockets[1].closed, []);
  w.sockets[1].resume();
  assert.equal(w.socket.detached, true);
});

test('a live connection found overdue after sleep is replaced at once, without a longer limit next time', async () => {
  const w = attached();
  w.clock.freeze(300_000);
  w.page.show('visible');
  assert.equal(w.sockets.length, 2);
  w.last().resume();
  await w.clock.advance(30_000);
  assert.equal(w.sockets.length, 3);
});

test('a short sleep asks whether the connection lives', async () => {
  const w = attached();
  w.last().receive('x'); // arms the timer of the ack
  w.clock.freeze(10_000, { machine: true });
  await w.clock.advance(1_000);
  assert.match(w.last().take().join(), /\^ping/);
  await w.clock.advance(2_000);
  assert.equal(w.sockets.length, 2);
});

test('a wall clock that is set forward asks once, and ends nothing', async () => {
  const w = attached();
  w.last().control('move', { within_ms: 3_600_000 }); // an alarm that stays far off
  await w.clock.advance(1_000);
  w.clock.away += 7_200_000;
  for (let i = 0; i < 10; i++) w.last().receive('x');
  const [ping, ...more] = w.last().takeControls('ping');
  assert.deepEqual(more, []);
  await w.clock.advance(1_900);
  w.last().control('pong', ping.slice('^ping '.length));
  await w.clock.advance(25_000);
  assert.equal(w.sockets.length, 1);
});
