import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attached, FIREFOX } from './helpers.js';

// HTTP probes: browsers hold WebSockets back after failures, and not requests.
const CHROMIUM =
  'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36';

/** A world in that browser. `net.answer` says what a request gets: a status, undefined for no answer, null for an error at once; by mode. */
function browsing(userAgent, first = {}) {
  const net = { answer: () => null, asked: [], open: 0 };
  const fetch = (url, { mode, signal }) => {
    net.asked.push([url, mode]);
    const status = net.answer(mode);
    if (status) return Promise.resolve({ status });
    if (status === null) return Promise.reject(new TypeError('NetworkError'));
    net.open++;
    return new Promise((_, fail) =>
      signal.addEventListener('abort', () => {
        net.open--;
        fail(new DOMException('aborted', 'AbortError'));
      }),
    );
  };
  const w = attached({
    runtime: { navigator: { onLine: true, userAgent }, fetch },
    first: { probe: true, answer_ms: 5_000, grace_ms: 1_200_000, ...first },
    url: 'ws://game.test/match/7?ticket=secret',
  });
  return { ...w, net };
}

/** Advances, with every attempt failing at once; returns how many failed. */
async function refused(w, ms) {
  let failures = 0;
  for (let t = 0; t < ms; t += 50) {
    for (const s of w.sockets.filter((s) => s.readyState === 0)) {
      s.drop();
      failures++;
    }
    await w.clock.advance(50);
  }
  return failures;
}

test('after an attempt that failed a browser asks over HTTP, and opens one WebSocket when the gateway answers', async () => {
  for (const userAgent of [FIREFOX, CHROMIUM]) {
    const w = browsing(userAgent);
    w.last().drop();
    assert.equal(w.sockets.length, 2, 'the first attempt comes at once: the network may be there');
    assert.equal(await refused(w, 300_000), 1, 'no attempt fails beyond the first');
    assert.ok(
      w.net.asked.length > 400, // two requests a probe, each 1 to 1.5 s
      `${w.net.asked.length}`,
    );
    assert.deepEqual(w.net.asked[0], ['http://game.test/match/7?reseat.alive', 'cors'], 'without the ticket');
    w.net.answer = () => 204;
    await w.clock.advance(1_500);
    assert.equal(w.sockets.length, 3);
    w.last().attach({ probe: true, resumed: true });
    assert.equal(w.socket.detached, false);
  }
});

test('a line lost in silence is asked about first; a probe that hangs is renewed every 2 s', async () => {
  const w = browsing(CHROMIUM);
  w.net.answer = () => undefined;
  const conn = w.last();
  await w.clock.advance(60_000); // nothing is heard
  assert.ok(w.socket.detached);
  assert.equal(w.sockets.length, 1, 'no attempt that would count as a failure');
  const asked = w.net.asked.length;
  await w.clock.advance(20_000);
  assert.equal(w.net.asked.length - asked, 10);
  assert.equal(w.net.open, 1, 'one at a time');
  w.net.answer = () => 204;
  await w.clock.advance(2_000);
  assert.equal(w.sockets.length, 2);
  assert.notEqual(w.last(), conn);
});

test('the answer of something else than the gateway allows an attempt, more and more rarely', async () => {
  for (const answer of [(mode) => (mode === 'cors' ? null : 1), () => 404]) {
    const w = browsing(FIREFOX);
    w.net.answer = answer; // a proxy whose gateway is away, or that wants a ticket
    w.last().drop();
    const failures = await refused(w, 300_000);
    assert.ok(failures >= 5 && failures <= 8, `${failures} attempts`);
    w.net.answer = () => 204;
    const before = w.sockets.length;
    await w.clock.advance(1_500);
    assert.equal(w.sockets.length, before + 1, 'but the gateway itself is believed at once');
  }
});

test('where the page may not ask, Firefox tries with patience: an attempt may be held back', async () => {
  const w = browsing(FIREFOX);
  const open = () => w.sockets.filter((s) => s.readyState === 0);
  w.net.answer = () => {
    w.page.fire('securitypolicyviolation', { blockedURI: 'http://game.test/match/7' });
    return null;
  };
  w.last().drop();
  await refused(w, 20_000);
  const asked = w.net.asked.length;
  await w.clock.advance(5_000);
  assert.equal(open().length, 1, 'it is not given up while Firefox may not have begun it');
  assert.equal(w.net.asked.length - asked, 0);
  open()[0].attach({ probe: true, resumed: true });
  assert.equal(w.socket.detached, false);
});

test('a gateway of before is not asked', async () => {
  const w = browsing(FIREFOX, { probe: undefined });
  w.last().drop();
  const failures = await refused(w, 30_000);
  assert.ok(failures > 5, `${failures}`);
  assert.deepEqual(w.net.asked, []);
});

test('a probe ends with what it was for', async () => {
  const w = browsing(FIREFOX);
  w.net.answer = () => undefined;
  for (let i = 0; i < 40; i++) {
    w.last().receive('tick');
    await w.clock.advance(50);
  }
  await w.clock.advance(4_100);
  assert.ok(w.socket.detached);
  assert.equal(w.net.open, 1);
  w.last().receive('tick'); // a false alarm
  assert.equal(w.socket.detached, false);
  assert.equal(w.net.open, 0);
  await w.clock.advance(10);
  assert.equal(w.sockets.length, 1);

  const closed = browsing(FIREFOX);
  closed.net.answer = () => undefined;
  await closed.clock.advance(60_000);
  closed.socket.close();
  await closed.clock.advance(1_200_000);
  assert.equal(closed.socket.readyState, 3);
  assert.equal(closed.net.open, 0);
  assert.equal(closed.clock.pending, 0);
});

test('an outage is over when giveUpAfter is, though all that is known is that probes hang', async () => {
  for (const answer of [undefined, null]) {
    const w = browsing(FIREFOX, { grace_ms: 1_000, heartbeat_ms: 500 });
    w.net.answer = () => answer;
    w.last().drop();
    await refused(w, 595_000);
    assert.equal(w.socket.readyState, 1);
    await refused(w, 60_000);
    assert.equal(w.socket.readyState, 3);
    assert.equal(w.clock.pending, 0);
  }
});
