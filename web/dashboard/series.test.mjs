import assert from 'node:assert/strict';
import { test } from 'node:test';
import { columns, join, rate } from './series.js';

/** @param {number} s @param {number} n */
const at = (s, n) =>
  /** @type {any} */ ({ time: new Date(1_700_000_000_000 + s * 1000).toISOString(), created: n, buffer_bytes: n });
const created = (/** @type {any} */ totals) => totals.created;

test('a rate is what was gained in a second, and is none where it cannot be told', () => {
  assert.equal(rate(at(0, 10), at(5, 60), created), 10);
  assert.equal(rate(undefined, at(5, 60), created), null);
  assert.equal(rate(at(0, 60), at(5, 10), created), null, 'a counter that falls was begun anew');
  assert.equal(rate(at(0, 10), at(1, 60), created), null, 'too close together');
});

test('samples are joined in order, none twice, and bounded', () => {
  const old = [at(0, 1), at(5, 2)];
  assert.deepEqual(join(old, [at(5, 2), at(10, 3)]).map(created), [1, 2, 3]);
  assert.deepEqual(join([], []), []);
  const many = Array.from({ length: 500 }, (_, i) => at(i * 5, i));
  assert.equal(join(many, []).length, 180);
});

test('charts get a value for each point of time', () => {
  const samples = [at(0, 0), at(5, 50), at(10, 50)];
  const read = (/** @type {any} */ totals) => totals.buffer_bytes;
  assert.deepEqual(columns(samples, [read], [created]), [
    [1_700_000_000, 1_700_000_005, 1_700_000_010],
    [0, 50, 50],
    [null, 10, 0],
  ]);
});
