import assert from 'node:assert/strict';
import { test } from 'node:test';
import { line } from './upgrade.js';

const none = {
  state: 'none',
  from: '',
  to: '',
  sessions: { moved: 0, pumped: 0, kept: 0 },
  freeze_ms: 0,
  error: '',
};

test('without an upgrade nothing is said', () => {
  assert.equal(line(none), null);
});

test('an upgrade under way names its version once that is known', () => {
  assert.equal(line({ ...none, state: 'running', from: 'v1.2.0' }).text, 'Upgrading, sessions continue');
  assert.equal(line({ ...none, state: 'running', to: 'v1.3.0' }).text, 'Upgrading to v1.3.0, sessions continue');
});

test('a finished upgrade says what became of the sessions', () => {
  const ok = { ...none, state: 'ok', from: 'v1.2.0', to: 'v1.3.0', freeze_ms: 84.2 };
  assert.deepEqual(line({ ...ok, sessions: { moved: 5000, pumped: 0, kept: 0 } }), {
    level: 'good',
    text: 'Upgraded from v1.2.0 to v1.3.0: 5,000 sessions handed over in 84 ms',
    error: '',
  });
  assert.equal(
    line({ ...ok, sessions: { moved: 4, pumped: 2, kept: 1 } }).text,
    'Upgraded from v1.2.0 to v1.3.0: 6 sessions handed over in 84 ms, 2 of them by way of the older process, 1 followed later',
  );
  assert.match(line({ ...ok, sessions: { moved: 1, pumped: 0, kept: 0 } }).text, /: 1 session handed over/);
});

test('a failed upgrade says why', () => {
  assert.deepEqual(line({ ...none, state: 'refused', from: 'v1.2.0', error: 'the gateway is draining' }), {
    level: 'bad',
    text: 'Upgrade refused',
    error: 'the gateway is draining',
  });
  assert.equal(
    line({ ...none, state: 'aborted', from: 'v1.2.0', to: 'v1.3.0', error: 'start: it has exited' }).text,
    'Upgrade to v1.3.0 aborted',
  );
});
