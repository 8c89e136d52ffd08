import assert from 'node:assert/strict';
import { test } from 'node:test';
import { place } from './labels.js';

const FIELD = { width: 400, height: 200, line: 14 };

/** @param {string} text @param {number} x @param {number} y */
const label = (text, x, y) => ({ text, bold: false, x, half: 30, above: y - 20, below: y + 20 });

/** @param {...ReturnType<typeof label>} labels */
const placed = (...labels) => place(labels, FIELD).map(({ text, x, y }) => [text, x, y]);

test('a name is below its player, and above at the bottom edge', () => {
  assert.deepEqual(placed(label('Otter', 100, 100)), [['Otter', 100, 120]]);
  assert.deepEqual(placed(label('Otter', 100, 190)), [['Otter', 100, 170]]);
});

test('a name stays inside at the sides', () => {
  assert.deepEqual(placed(label('Otter', 5, 100), label('Heron', 395, 100)), [
    ['Otter', 30, 120],
    ['Heron', 370, 120],
  ]);
});

test('of two players side by side the second name goes above, and a third is left out', () => {
  assert.deepEqual(placed(label('Otter', 100, 100), label('Heron', 120, 102), label('Lynx', 110, 101)), [
    ['Otter', 100, 120],
    ['Heron', 120, 82],
  ]);
});

test('names that only touch stay where they are', () => {
  assert.deepEqual(placed(label('Otter', 100, 100), label('Heron', 160, 100)), [
    ['Otter', 100, 120],
    ['Heron', 160, 120],
  ]);
});
