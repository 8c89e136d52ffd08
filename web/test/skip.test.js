import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attached, said } from './helpers.js';

// Messages that newer ones have replaced, protocol section 3.

test('skipped messages count as if they had come, and the application hears where', async () => {
  const w = attached();
  w.last().receive('one');
  w.last().drop();
  let resumed;
  w.socket.addEventListener('resume', ({ detail }) => (resumed = said(detail)));
  w.last().resume({ replay: 2, skipped: 7 });
  assert.deepEqual([resumed.replay, resumed.lost, resumed.skipped], [2, 0, 7]);
  w.last().control('skip', 3);
  w.last().receive('five');
  w.last().control('skip', 4);
  w.last().receive('ten');
  assert.deepEqual(w.take(), ['one', 'detach 1', 'resume 2 0', 'skip 3', 'five', 'skip 4', 'ten', 'replayed']);
  await w.clock.advance(1_000);
  assert.equal(w.last().take().at(-1), '^ack 10');
  w.last().drop();
  assert.equal(w.last().stated.received, '10');
});

test('numbers that the application has are not skipped: an older connection brought them meanwhile', async () => {
  const w = attached();
  const old = w.last();
  old.control('move', { within_ms: 0 });
  await w.clock.advance(1);
  for (const text of ['one', 'two']) old.receive(text);
  w.last().resume({ replay: 1, skipped: 5 });
  w.last().control('skip', 2);
  w.last().control('skip', 3);
  w.last().receive('six');
  assert.deepEqual(w.take(), ['one', 'two', 'resume 1 0', 'skip 3', 'six', 'replayed']);
});

test('replayed fires once the last of the messages has come, be they replaced while they are sent', () => {
  const w = attached();
  w.last().drop();
  w.last().resume({ replay: 3 });
  w.last().receive('one');
  w.last().control('skip', 2);
  assert.deepEqual(w.take().slice(-2), ['skip 2', 'replayed']);
  w.last().drop();
  w.last().resume({ skipped: 2 });
  assert.ok(!w.take().includes('replayed'));
  w.last().control('skip', 2);
  assert.deepEqual(w.take(), ['skip 2', 'replayed']);
});

test('a run of skipped messages counts as one for the ack schedule', async () => {
  const w = attached();
  w.last().control('skip', 1_000);
  assert.deepEqual(w.last().take(), []);
  await w.clock.advance(1_000);
  assert.deepEqual(w.last().take(), ['^ack 1000']);
});

test('a skip of nothing, or inside a message in parts, makes the connection no good', () => {
  for (const spoil of [
    (conn) => conn.control('skip', 0),
    (conn) => conn.control('skip'),
    (conn) => conn.control('skip', -1),
    (conn) => {
      conn.control('parts', { bytes: 4, text: true });
      conn.control('skip', 1);
    },
  ]) {
    const w = attached();
    spoil(w.last());
    assert.ok(w.socket.detached, String(spoil));
    assert.equal(w.last().stated.received, '0');
  }
});
