import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Tally } from './tally.js';

/** @param {number[]} numbers */
function tallyOf(numbers) {
  const tally = new Tally();
  for (const n of numbers) tally.note(n);
  const { got, missed, twice, late } = tally;
  return [got, missed, twice, late];
}

for (const [name, numbers, want] of /** @type {[string, number[], number[]][]} */ ([
  ['nothing', [], [0, 0, 0, 0]],
  ['in order', [1, 2, 3], [3, 0, 0, 0]],
  ['one missing', [1, 3], [2, 1, 0, 0]],
  ['the first two missing', [3], [1, 2, 0, 0]],
  ['one doubled', [1, 2, 2, 3], [3, 0, 1, 0]],
  ['an old one doubled', [1, 2, 3, 1], [3, 0, 1, 0]],
  ['two exchanged', [1, 3, 2, 4], [4, 0, 0, 1]],
  ['late, then doubled', [1, 3, 2, 2], [3, 0, 1, 1]],
  ['out of the middle of a gap', [1, 9, 5, 4, 5], [4, 5, 1, 2]],
  ['zero', [0, 1, 0], [1, 0, 2, 0]],
])) {
  test(`a tally tells missed, twice and late: ${name}`, () => {
    assert.deepEqual(tallyOf(numbers), want);
  });
}

test('a tally goes on from the counts of another', () => {
  const tally = new Tally({ got: 3, missed: 1, twice: 1, late: 0 });
  tally.note(5);
  tally.note(7);
  assert.deepEqual([tally.got, tally.missed, tally.twice], [5, 2, 1]);
});

test('a huge gap is counted in full without being remembered in full', () => {
  const tally = new Tally();
  tally.note(2 ** 50);
  assert.equal(tally.missed, 2 ** 50 - 1);
});

test('skipped numbers are not missed, and those after them are counted on', () => {
  const tally = new Tally();
  tally.note(1);
  tally.skip(3);
  tally.note(5);
  tally.note(7);
  assert.deepEqual([tally.got, tally.missed, tally.skipped], [3, 1, 3]);
  const next = new Tally(tally);
  next.note(8);
  assert.deepEqual([next.got, next.missed, next.skipped], [4, 1, 3]);
});
