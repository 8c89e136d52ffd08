import assert from 'node:assert/strict';
import { test } from 'node:test';
import { engineFacts, facts } from './nodes.js';
import { MOST_ROWS, reach } from './rows.js';

const node = { version: 'v1.2.0', sessions: 1234, forwards_in: 3, forwards_out: 0, heartbeat_age_ms: 61_000 };

test('a node says how it is, and when it was heard', () => {
  assert.equal(facts(node, false), 'v1.2.0, 1,234 sessions, forwards 3 in, 0 out, heard 1 m 1 s ago');
  assert.equal(facts({ ...node, sessions: 1 }, true), 'v1.2.0, 1 session, forwards 3 in, 0 out, this one');
});

test('the table of a cluster is shorter than that of one gateway', () => {
  assert.equal(reach(null), MOST_ROWS);
  assert.equal(reach({}), MOST_ROWS);
  assert.equal(reach({ nodes: [node] }), 5000);
});

test('NATS is up with what it has, or lost since when', () => {
  const since = '2026-11-22T12:00:00Z';
  const now = Date.parse(since) + 61_000;
  const engine = { up: true, servers: 3, replicas: 1, rtt_ms: 0.42, since };
  assert.equal(engineFacts(engine, now), '3 servers, 1 replica, 0.4 ms, for 1 m 1 s');
  assert.equal(
    engineFacts({ ...engine, up: false }, now),
    'for 1 m 1 s: players notice nothing, new nodes are not seen',
  );
});
