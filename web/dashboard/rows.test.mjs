import assert from 'node:assert/strict';
import { test } from 'node:test';
import { asked, drawn, holds, MOST_ROWS, scrollTo, step } from './rows.js';

test('a window of a long table draws few rows, wherever it is', () => {
  for (let top = 0; top < 10_000 * 40; top += 777) {
    const span = drawn({ top, height: 600, row: 40, total: 10_000 });
    assert.ok(span.end - span.first <= 32, `${span.end - span.first} rows at ${top}`);
    assert.ok(
      span.first * 40 <= top && span.end * 40 >= Math.min(top + 600, 400_000),
      `what is seen at ${top} is drawn`,
    );
    assert.ok(span.first >= 0 && span.end <= 10_000);
  }
});

test('short, empty and over-scrolled tables are drawn as far as they go', () => {
  assert.deepEqual(drawn({ top: 0, height: 600, row: 40, total: 3 }), { first: 0, end: 3 });
  assert.deepEqual(drawn({ top: 0, height: 600, row: 40, total: 0 }), { first: 0, end: 0 });
  assert.deepEqual(drawn({ top: 99_999, height: 600, row: 40, total: 3 }), { first: 3, end: 3 });
  assert.equal(drawn({ top: 1e9, height: 600, row: 40, total: 1e9 }).end, MOST_ROWS);
});

test('what is asked for holds what is drawn, and is bounded', () => {
  for (const span of [
    { first: 0, end: 0 },
    { first: 0, end: 30 },
    { first: 5000, end: 5030 },
    { first: 100, end: 260 },
  ]) {
    const { offset, limit } = asked(span);
    assert.ok(limit <= 200 && limit >= 1);
    if (span.end - span.first <= 100) assert.ok(holds(span, offset, limit), JSON.stringify(span));
  }
  assert.equal(holds({ first: 10, end: 20 }, 11, 100), false);
  assert.equal(holds({ first: 10, end: 20 }, 0, 19), false);
});

test('a row is scrolled into view by as little as possible', () => {
  const view = { top: 400, height: 200, row: 40 };
  assert.equal(scrollTo(12, view), 400);
  assert.equal(scrollTo(9, view), 360);
  assert.equal(scrollTo(15, view), 440);
});

test('keys lead through the rows, and not beyond', () => {
  const of = { page: 10, total: 100 };
  const steps = [
    ['ArrowDown', -1, 0],
    ['ArrowUp', -1, 99],
    ['ArrowDown', 99, 99],
    ['ArrowUp', 0, 0],
    ['PageDown', 5, 14],
    ['PageUp', 5, 0],
    ['Home', 50, 0],
    ['End', 50, 99],
    ['a', 5, -1],
    ['Enter', 5, -1],
  ];
  for (const [key, from, to] of steps) assert.equal(step(String(key), Number(from), of), to, `${key} from ${from}`);
  assert.equal(step('ArrowDown', -1, { page: 10, total: 0 }), -1, 'there are none');
});
