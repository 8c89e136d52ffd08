import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LOOKS, lookOf, sentence, stretches, summary, why } from './past.js';

/** @param {number} s @param {string} type @param {object} [more] @returns {any} */
const at = (s, type, more) => ({
  time: new Date(s * 1000).toISOString(),
  type,
  peer: '203.0.113.7',
  was: '',
  reason: '',
  detail: '',
  silent: '',
  away: '',
  replay: 0,
  lost: 0,
  times: 1,
  ...more,
});

test('each event has a sentence and a mark of its own', () => {
  const marks = new Set();
  for (const type of Object.keys(LOOKS).filter((each) => each !== 'gap')) {
    assert.ok(sentence(at(0, type)).length > 5 && !sentence(at(0, type)).includes('undefined'), sentence(at(0, type)));
    marks.add(lookOf(type).mark);
  }
  assert.equal(marks.size, Object.keys(LOOKS).length - 1);
  assert.equal(lookOf('session.unheard').word, 'session.unheard');
});

test("a session that has moved says why, and was away from its node's end on", () => {
  assert.equal(sentence(at(0, 'session.moved', { reason: 'failover' })), 'Moved to another node, its node was lost');
  assert.equal(sentence(at(0, 'session.moved', { reason: 'handoff' })), 'Moved to another node, its node drained');
  const past = [at(0, 'session.created'), at(60, 'session.moved'), at(60, 'session.resumed', { away: '2s' })];
  const seconds = stretches(past, 0, 90_000).map(({ from, to, attached }) => [from / 1000, to / 1000, attached]);
  assert.deepEqual(seconds, [
    [0, 58, true],
    [58, 60, false],
    [60, 90, true],
  ]);
});

/** @type {[string, object, string][]} */
const SENTENCES = [
  [
    'session.detached',
    { reason: 'silent', silent: '5.001s' },
    'Client disconnected, silent for 5.0 s, was at 203.0.113.7',
  ],
  [
    'session.detached',
    { reason: 'EOF', silent: '40ms' },
    'Client disconnected, EOF, silent for 40 ms, was at 203.0.113.7',
  ],
  [
    'session.resumed',
    { away: '7.2s', replay: 1, lost: 3, skipped: 7 },
    'Resumed from 203.0.113.7, away for 7.2 s since the last sign of life, 1 message replayed, 3 lost, 7 skipped',
  ],
  [
    'session.superseded',
    { was: '198.51.100.2', away: '4.1s' },
    'Taken over by 203.0.113.7, from 198.51.100.2, away for 4.1 s since the last sign of life, 0 messages replayed',
  ],
  ['grace.changed', { was: '30s', detail: '5m' }, 'Grace period changed from 30 s to 5 m'],
  [
    'session.ended',
    { reason: 'grace_over', detail: 'grace period over' },
    'Ended by the gateway: the grace period was over',
  ],
  ['session.ended', { reason: 'ended', detail: 'kicked out' }, 'Ended by an operator or the game server, “kicked out”'],
  [
    'session.ended',
    { reason: 'idle_timeout', detail: 'idle timeout' },
    'Ended by the gateway: no message for --idle-timeout',
  ],
  [
    'session.ended',
    { reason: 'ended', detail: 'kicked out', by: 'admin-token line 2' },
    'Ended over the control API, by admin-token line 2, “kicked out”',
  ],
  ['session.ended', { reason: 'bye', detail: 'a' }, 'Ended by the client, “a”'],
  ['session.ended', { reason: 'upstream_closed', detail: 'match over' }, 'Ended by the game server, “match over”'],
  ['session.ended', { reason: 'too_fast' }, 'Ended by the gateway: too fast'],
  ['session.created', { peer: '' }, 'Pre-created'],
];
test('sentences say from where, for how long, and what was lost', () => {
  for (const [type, more, want] of SENTENCES) assert.equal(sentence(at(0, type, more)), want);
  assert.equal(why('read tcp 127.0.0.1:8080->127.0.0.1:5000: connection reset by peer'), 'connection reset by peer');
});

test('stretches tell when it was attached', () => {
  const past = [
    at(0, 'session.created'),
    at(10, 'session.detached'),
    at(12, 'session.resumed'),
    at(20, 'session.superseded'),
    at(25, 'token.replayed'),
    at(30, 'session.detached'),
  ];
  const want = [
    { from: 0, to: 10_000, attached: true },
    { from: 10_000, to: 12_000, attached: false },
    { from: 12_000, to: 30_000, attached: true },
    { from: 30_000, to: 40_000, attached: false },
  ];
  assert.deepEqual(stretches(past, 0, 40_000), want);
  assert.equal(summary(want), 'Attached for 28 s, detached 2 times for 12 s in all.');
  assert.deepEqual(stretches([...past, at(35, 'session.ended')], 0, 99_000).at(-1), {
    from: 30_000,
    to: 35_000,
    attached: false,
  });
});

test('an outage begins with the last sign of life', () => {
  const past = [
    at(0, 'session.created'),
    at(15, 'session.detached', { silent: '5s' }),
    at(17, 'session.resumed', { away: '7s' }),
    at(30, 'session.superseded', { away: '4.5s' }),
  ];
  const want = [
    [0, 10, true],
    [10, 17, false],
    [17, 25.5, true],
    [25.5, 30, false],
    [30, 40, true],
  ].map(([from, to, attached]) => ({ from: Number(from) * 1000, to: Number(to) * 1000, attached }));
  assert.deepEqual(stretches(past, 0, 40_000), want);
  // One that came back a moment ago, and has not been heard since.
  assert.deepEqual(stretches([at(0, 'session.resumed'), at(3, 'session.detached', { silent: '4s' })], 0, 5000), [
    { from: 0, to: 0, attached: true },
    { from: 0, to: 5000, attached: false },
  ]);
});

test('what is not kept is not guessed', () => {
  const past = [at(0, 'session.created'), at(100, 'session.detached'), at(110, 'session.resumed')];
  assert.deepEqual(stretches(past, 50, 120_000), [
    { from: 100_000, to: 110_000, attached: false },
    { from: 110_000, to: 120_000, attached: true },
  ]);
  assert.deepEqual(stretches([], 0, 1), []);
});

test('a session made ahead begins without its client', () => {
  const ahead = stretches([at(0, 'session.created', { peer: '' })], 0, 5000);
  assert.deepEqual(ahead, [{ from: 0, to: 5000, attached: false }]);
  assert.equal(summary(ahead), 'Not attached yet, for 5.0 s.');
});
