import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Wire } from './wire.js';
import { advice, html, parseDuration, socketReport } from './report.js';

const url = new URL('ws://127.0.0.1:8080/play?token=secret');
const socket = (over = {}) => ({
  reseat: true,
  outages_ms: [],
  buffered: { messages: 0, bytes: 0 },
  missed: 0,
  sessions_lost: 0,
  noticed_ms: 0,
  round_trip_ms: 0,
  settings: {
    heartbeat: '15s',
    'answer-timeout': '5s',
    grace: '30s',
    overflow: 'pause',
    'buffer-messages': 4096,
    'buffer-bytes': 1 << 20,
  },
  ...over,
});
const advise = (over, link = {}) => advice(socket(over), { url, gateway: {}, wire: new Wire(), ...link });
const lines = (over, link) => advise(over, link).map(({ line }) => line);
/** A server that pings every 20 s from second 0 on, and the page's answers; then an outage from 50 s to 85 s. */
function pinged(receive, answer) {
  const wire = new Wire();
  for (const at of [0, 20, 40, 60, 80]) {
    if (at < 50) wire.heard(receive, at * 1000);
    else wire.heard(receive, 85_000, 50_000); // replayed
    wire.said(answer, (at < 50 ? at : 85) * 1000 + 5);
  }
  return wire;
}

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
  const [{ line, why }] = advise({ outages_ms: [2_000, 12_100] });
  assert.deepEqual([line, /less than 13 s/.test(why)], ['', true], 'what would have lost the seat');
});

test('a buffer that was half full asks for a larger one', () => {
  assert.deepEqual(lines({ buffered: { messages: 3000, bytes: 600_000 } }), [
    'buffer-messages = 20000',
    'buffer-bytes = 5000000',
  ]);
  const kept = advise({ buffered: { messages: 200, bytes: 100 } });
  assert.deepEqual(
    kept.map(({ line, why }) => [
      line,
      /^a buffer of less than (200 messages|100 bytes) would have overflowed/.test(why),
    ]),
    [
      ['', true],
      ['', true],
    ],
    'what would have lost the seat',
  );
});

test('a ping that the game server sent into the outage asks for its answer', () => {
  const [{ line, why }] = advise({}, { wire: pinged('ping', 'pong') });
  assert.equal(line, 'keepalive-reply = ["ping=>pong"]');
  assert.equal(why, 'your game server sent a ping of its own 10 s into the outage; set --keepalive-reply');
  assert.deepEqual(lines({}, { wire: pinged('2', '3') })[0], 'keepalive-reply = ["engine.io"]');
  const answered = advise({}, { wire: pinged('ping', 'pong'), gateway: { keepalive_replies: 1 } });
  assert.deepEqual([answered[0].line, /^without keepalive-reply, .* 10 s into/.test(answered[0].why)], ['', true]);
});

test('libraries are known by their addresses and their first message', () => {
  const said = (text) => {
    const wire = new Wire();
    wire.said(text, 0);
    return wire;
  };
  const at = (text) => ({ url: new URL(text) });
  for (const [link, line] of [
    [at('ws://h/socket.io/?EIO=4&transport=websocket'), 'keepalive-reply = ["engine.io"]'],
    [at('ws://h/socket.io/?EIO=3&transport=websocket'), 'keepalive-send = ["5s:2"]'],
    [at('ws://h/p1x2/r3y4?sessionId=abc'), '<script src="/reseat.install.js" data-hide-offline></script>'],
    [{ wire: said('{"protocol":"json","version":1}\x1e') }, String.raw`keepalive-send = ["10s:{\"type\":6}\u001e"]`],
    [{ wire: said('{"protocol":"messagepack","version":1}\x1e') }, 'keepalive-send = ["10s/binary:029106"]'],
    [{ wire: said('{"protocol":"json","version":1}') }, undefined],
  ])
    assert.equal(lines({}, link)[0], line);
});

test('what a library needs in the page is advised until the page has it', () => {
  const link = { url: new URL('ws://h/socket.io/?EIO=4'), wire: new Wire(), gateway: { keepalive_replies: 1 } };
  const tag = '<script src="/reseat.install.js" data-hide-offline data-keepalive="engine.io"></script>';
  for (const [script, want] of [
    [{}, [tag]],
    [{ hideOffline: '' }, [tag]],
    [{ keepalive: 'engine.io' }, [tag]],
    [{ hideOffline: '', keepalive: 'engine.io' }, []],
  ])
    assert.deepEqual(
      advice(socket(), link, script).map(({ line }) => line),
      want,
    );
  assert.deepEqual(advice(socket(), { ...link, url: new URL('ws://h/p/r?sessionId=a') }, { hideOffline: '' }), []);
});

test('a game that gave the player up gets what its page says most as a keepalive', () => {
  const wire = new Wire();
  for (let n = 0; n < 30; n++) wire.said(`42["0",{"x":${n},"y":-${n}.5}]`, n);
  for (let n = 0; n < 12; n++) wire.said('42["1"]', n);
  const [{ line, why }] = advise({}, { wire, ended: { how: '1005, right after an outage', outage: true } });
  assert.equal(line, String.raw`keepalive-send = ["1s:42[\"0\",{\"x\":29,\"y\":-29.5}]"]`);
  assert.match(why, /^the game gave the player up\. .*answer-timeout = "5s"/);
  assert.deepEqual(advise({}, { wire, ended: { how: 'the page closed it', outage: false } }), []);
});

test('a slow round trip asks for a longer answer timeout, a late notice for a shorter heartbeat', () => {
  assert.deepEqual(lines({ round_trip_ms: 1_800 }), ['answer-timeout = "9s"']);
  assert.deepEqual(lines({ round_trip_ms: 200 }), []);
  assert.deepEqual(lines({ round_trip_ms: 400, noticed_ms: 18_000 }), ['heartbeat = "4s"']);
  assert.deepEqual(lines({ round_trip_ms: 20, noticed_ms: 18_000 }), ['heartbeat = "2s"']);
  assert.deepEqual(lines({ round_trip_ms: 20, noticed_ms: 5_000 }), []);
});

test('what the gateway took for states, or for a keepalive, becomes a line of the config', () => {
  assert.deepEqual(lines({}, { gateway: { newest_hint: `--newest 'state=json:/type="it'\\''s"'` } }), [
    String.raw`newest = ["state=json:/type=\"it's\""]`,
  ]);
  assert.deepEqual(lines({}, { gateway: { keepalive: `--keepalive-send '5s:x'` } }), ['keepalive-send = ["5s:x"]']);
  assert.deepEqual(lines({}, { gateway: { keepalive: `--keepalive-send '5s:x'`, keepalives: 1 } }), []);
});

test('in a cluster a session that is not durable dies with its node', () => {
  assert.deepEqual(lines({}, { gateway: { cluster: true, durable: 'no' } }), ['durable = "on"']);
  assert.deepEqual(lines({}, { gateway: { cluster: true, durable: 'covered' } }), []);
});

test('a game server that closed a silent connection asks for a keepalive', () => {
  const gateway = { closed_after: '25s', keepalive: "--keepalive-send '10s:ping'" };
  assert.deepEqual(lines({}, { gateway }), ['keepalive-send = ["10s:ping"]']);
  assert.match(advise({}, { gateway })[0].why, /25s after/);
});

test('messages that overflow dropped are no silent loss', () => {
  assert.deepEqual(lines({ missed: 3, settings: { ...socket().settings, overflow: 'drop-oldest' } }), [
    'overflow = "pause"',
  ]);
});

test('the page shows what it is given as text, and no secret of the address', () => {
  const link = {
    url,
    wire: new Wire(),
    session: 'x',
    skipped: 0,
    noticed: 0,
    slowest: 0,
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
    made: '2026-03-04T05:06:07.890Z',
    page: '<script>alert(1)</script>',
    runs: [
      { reseat: true, began: '<2026', lasted_s: 3, cuts: [{ at_s: 1, name: '<b>', fault: {} }], sockets: [report] },
    ],
  });
  assert.ok(!page.includes('<script') && !page.includes('<b>') && !page.includes('secret'));
  assert.match(page, /nothing: one connection all the time/);
  assert.match(page, /, 2026-03-04 05:06:07 UTC<.*Began &#60;2026,/s);
});
