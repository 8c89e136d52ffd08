import assert from 'node:assert/strict';
import { test } from 'node:test';
import { COLUMNS, Track, bursts } from './timeline.js';

/** @param {number[]} counts */
const columns = (...counts) => counts.map((got) => ({ got, state: 'attached', marks: [] }));

test('an outage begins with the last message, though it is noticed later', () => {
  const track = new Track();
  for (const [got, state] of [
    [10, 'attached'],
    [20, 'attached'],
    [20, 'attached'],
    [20, 'silent'],
    [20, 'detached'],
    [90, 'attached'],
  ])
    track.add(got, state);
  assert.deepEqual(
    track.columns.map(({ state }) => state),
    ['attached', 'attached', 'silent', 'silent', 'detached', 'attached'],
  );
  assert.equal(track.columns.at(-1)?.got, 70);
  assert.match(track.summary, /no messages for 0\.6 s .* at most 70 messages/);
});

test('the quiet of a game before its cut is no outage', () => {
  const track = new Track();
  for (const [got, state] of [
    [10, 'attached'],
    [10, 'attached'],
    [10, 'cut'],
    [10, 'attached'],
    [10, 'silent'],
  ]) {
    if (state === 'cut') track.mark('cut');
    track.add(got, state === 'cut' ? 'attached' : state);
  }
  assert.deepEqual(
    track.columns.map(({ state }) => state),
    ['attached', 'attached', 'silent', 'silent', 'silent'],
  );
});

test('only the last half minute is kept', () => {
  const track = new Track();
  for (let i = 0; i < COLUMNS + 50; i++) track.add(i, 'attached');
  assert.equal(track.columns.length, COLUMNS);
});

test('a replay that spans columns is one burst', () => {
  assert.deepEqual(bursts(columns(9, 50, 40, 9, 60, 9, 9, 9, 9, 9, 9, 31), 30), [
    { at: 1, got: 150 },
    { at: 11, got: 31 },
  ]);
  assert.deepEqual(bursts(columns(9, 30), 30), []);
});

test('a lane is full at three times the usual number', () => {
  const track = new Track();
  for (const got of [0, 4, 8, 12, 40, 44]) track.add(got, 'attached');
  assert.equal(track.full, 12);
});
