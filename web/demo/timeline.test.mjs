import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bursts, COLUMNS, Track } from './timeline.js';

test('a track counts what came in each column, and keeps half a minute', () => {
  const track = new Track();
  track.add(5, 'playing');
  track.mark('cut');
  track.add(5, 'away');
  track.mark('back');
  track.add(205, 'playing');
  assert.deepEqual(track.columns, [
    { got: 5, state: 'playing', marks: [] },
    { got: 0, state: 'away', marks: ['cut'] },
    { got: 200, state: 'playing', marks: ['back'] },
  ]);
  assert.equal(track.summary, 'away for 0.2 s of the last half minute, at most 200 messages in 200 ms');
  for (let i = 0; i < 1000; i++) track.add(205, 'playing');
  assert.equal(track.columns.length, COLUMNS);
});

test('an outage begins with the last message, however late it is known', () => {
  const track = new Track();
  for (const [got, state] of /** @type {const} */ ([
    [5, 'playing'],
    [5, 'playing'],
    [5, 'playing'],
    [5, 'silent'],
    [5, 'away'],
    [90, 'playing'],
    [90, 'playing'],
    [90, 'lost'],
  ]))
    track.add(got, state);
  assert.deepEqual(
    track.columns.map(({ state }) => state),
    ['playing', 'silent', 'silent', 'silent', 'away', 'playing', 'silent', 'lost'],
  );
});

test('a replay that falls into two columns is one burst, two replays are two', () => {
  const columns = [5, 31, 40, 3, 0, 99, 30].map((got) => ({ got, state: /** @type {const} */ ('playing'), marks: [] }));
  assert.deepEqual(bursts(columns), [
    { at: 1, got: 71 },
    { at: 5, got: 99 },
  ]);
  assert.deepEqual(bursts([]), []);
});
