import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parts, summary } from './refused.js';

test('a hint is its flag and what to do with it', () => {
  assert.deepEqual(parts('--max-sessions-per-ip: raise it; see --trusted-proxy: there'), {
    flag: '--max-sessions-per-ip',
    words: 'raise it; see --trusted-proxy: there',
  });
  assert.deepEqual(parts('no setting: the page needs a newer login'), {
    flag: '',
    words: 'the page needs a newer login',
  });
  assert.deepEqual(parts('see the log'), { flag: '', words: 'see the log' });
});

test('the list and the total of refusals are both shown', () => {
  assert.equal(summary(0, 0), 'handshakes and resumes');
  assert.equal(summary(7, 7), '7');
  assert.equal(summary(100, 12_345), 'the newest 100 of 12,345');
});
