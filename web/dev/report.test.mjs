import assert from 'node:assert/strict';
import { test } from 'node:test';
import { advice, html, parseDuration, socketReport } from './report.js';

const url = new URL('ws://127.0.0.1:8080/play?token=secret');
const socket = (over = {}) => ({
  reseat: true,
  outages_ms: [],
  buffered: { messages: 0, bytes: 0 },
  missed: 0,
  sessions_lost: 0,
  settings: { grace: '30s', overflow: 'pause', 'buffer-messages': 4096, 'buffer-bytes': 1 << 20 },
  ...over,
});
const lines = (over, link = {}) => advice(socket(over), { url, gateway: {}, ...link }).map(({ line }) => line);

test('durations are those of the gateway', () => {
  for (const [text, ms] of [
    ['30s', 30_000],
    ['1h30m0s', 5_400_000],
    ['500ms', 500],
    ['1m0.5s', 60_500],
    ['', 0],
    [undefined, 0],
  ])
    assert.equal(parseDuration(text), ms);
});

test('an outage that took most of the grace period asks for a longer one', () => {
  assert.deepEqual(lines({ outages_ms: [2_000, 16_000] }), ['grace = "50s"']);
  const [{ line, why }] = advice(socket({ outages_ms: [2_000, 12_100] }), { url, gateway: {} });
  assert.deepEqual([line, /less than 13 s/.test(why)], ['', true], 'what would have lost the seat');
});

test('a buffer that was half full asks for a larger one', () => {
  assert.deepEqual(lines({ buffered: { messages: 3000, bytes: 600_000 } }), [
    'buffer-messages = 20000',
    'buffer-bytes = 5000000',
  ]);
  assert.deepEqual(lines({ buffered: { messages: 200, bytes: 100 } }), ['']);
});

test('Socket.IO is known by its address', () => {
  assert.deepEqual(lines({}, { url: new URL('ws://h/socket.io/?EIO=4&transport=websocket') }), [
    'keepalive-reply = ["engine.io"]',
  ]);
});

test('a game server that closed a silent connection asks for a keepalive', () => {
  const gateway = { closed_after: '25s', keepalive: "--keepalive-send '10s:ping'" };
  assert.deepEqual(lines({}, { gateway }), ["# --keepalive-send '10s:ping'"]);
  assert.match(advice(socket(), { url, gateway })[0].why, /25s after/);
});

test('messages that overflow dropped are no silent loss', () => {
  assert.deepEqual(lines({ missed: 3, settings: { ...socket().settings, overflow: 'drop-oldest' } }), [
    'overflow = "pause"',
  ]);
});

test('the page shows what it is given as text, and no secret of the address', () => {
  const link = {
    url,
    session: 'x',
    delivered: 5,
    sends: 4,
    missed: 0,
    duplicated: 0,
    replayed: 3,
    sessionsLost: 0,
    outages: [12.4],
    upstreamLost: 0,
    most: { messages: 1, bytes: 2 },
    longestReplay: 3,
    gateway: { grace: '30s' },
  };
  const report = socketReport(link, [1, -1, 2]);
  assert.deepEqual([report.outages_ms, report.buffered.messages, report.url], [[12], 3, 'ws://127.0.0.1:8080/play']);
  const page = html({
    made: 'now',
    page: '<script>alert(1)</script>',
    runs: [
      { reseat: true, began: 'then', lasted_s: 3, cuts: [{ at_s: 1, name: '<b>', fault: {} }], sockets: [report] },
    ],
  });
  assert.ok(!page.includes('<script') && !page.includes('<b>') && !page.includes('secret'));
  assert.match(page, /nothing: one connection all the time/);
});
