import assert from 'node:assert/strict';
import { test } from 'node:test';
import { signs } from './marks.js';

test('only durable sessions, and those that have moved, have signs', () => {
  const of = (/** @type {string} */ durable, moved = '') => signs(/** @type {any} */ ({ durable, moved }));
  assert.deepEqual(of('no'), []);
  assert.deepEqual(signs(/** @type {any} */ ({})), []);
  assert.deepEqual(of('covered'), ['covered']);
  assert.deepEqual(of('exposed', 'failover'), ['exposed', 'moved']);
  assert.deepEqual(of('no', 'handoff'), ['moved']);
});
