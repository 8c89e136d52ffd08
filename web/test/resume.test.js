import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attached, resumeOffer, said } from './helpers.js';

// The way back: when it is tried, for how long, and what ends it.

const GIVE_UP = 30_000 + 2 * 15_000; // grace_ms + 2 x heartbeat_ms of the hello in use

/** Fails every attempt there is now. */
const failOpen = (w) => w.sockets.filter((s) => s.readyState === 0).forEach((s) => s.drop());

/** Advances with every attempt failing at once. */
async function unreachable(w, ms, step = 50) {
  for (let t = 0; t < ms; t += step) {
    failOpen(w);
    await w.clock.advance(step);
  }
  failOpen(w);
}

test('a drop and a resume show in none of the standard events', () => {
  const { socket, log, last, sockets } = attached({ protocols: ['chat.v2'], first: { protocol: 'chat.v2' } });
  sockets[0].drop();
  assert.equal(socket.readyState, 1);
  assert.equal(socket.detached, true);
  assert.deepEqual(last().protocols, ['chat.v2', ...resumeOffer()]);
  last().resume({ replay: 1, protocol: '' });
  last().receive('replayed one');
  assert.deepEqual(log, ['detach 1', 'resume 1 0', 'replayed one', 'replayed']);
  assert.equal(socket.detached, false);
  assert.equal(socket.protocol, 'chat.v2');
  assert.equal(socket.session, 's1');
});

test('detach and resume say how often, since when and how long', async () => {
  const w = attached();
  const events = [];
  for (const type of ['detach', 'resume', 'replayed']) w.socket.addEventListener(type, (event) => events.push(event));
  const since = w.clock.mono + w.clock.away;
  w.last().drop();
  await w.clock.advance(100);
  w.last().drop();
  await w.clock.advance(3_000);
  w.last().resume({ replay: 0, lost: 2 });
  assert.deepEqual(
    events.map((event) => [event.type, said(event.detail)]),
    [
      ['detach', { attempt: 1, since }],
      ['detach', { attempt: 2, since }],
      ['resume', { replay: 0, lost: 2, skipped: 0, ms: 3_100 }],
      ['replayed', {}],
    ],
  );
  assert.equal(events[1].attempt, 2);
  assert.equal(events[1].since, since);
  assert.equal(events[2].ms, 3_100);
});

test('a connection that is closing is given nothing more, and the next one all of it', () => {
  const w = attached();
  const [first] = w.sockets;
  first.take();
  first.readyState = 2; // the Close frame has come, its event has not
  w.socket.send('on the way');
  assert.deepEqual(first.take(), []);
  first.end(1006, '', false);
  w.last().resume({ received: 0 });
  assert.deepEqual(w.last().take(), ['^ack 0', 'on the way']);
});

test('an outage of the game server is told once, whatever happens to the connection', () => {
  const w = attached();
  /** @type {string[]} */
  const heard = [];
  w.socket.addEventListener('upstream', (/** @type {any} */ { state, detail }) => heard.push(state, detail.state));
  w.last().control('upstream', { state: 'back' });
  w.last().control('upstream', { state: 'lost' });
  w.last().drop();
  w.last().resume({ received: 0 });
  w.last().control('upstream', { state: 'lost' });
  w.last().drop();
  w.last().resume({ received: 0 });
  w.last().control('upstream', { state: 'back' });
  assert.deepEqual(heard, ['lost', 'lost', 'back', 'back']);
});

test('the code of a Close frame decides nothing', () => {
  for (const code of [1000, 1001, 1005, 1012, 4409, 4404, 3000]) {
    const { last, log } = attached();
    last().end(code, 'by somebody in between');
    assert.deepEqual(last().stated, { token: 'h.p.s', received: '0' }, `${code}`);
    assert.deepEqual(log, ['detach 1']);
  }
});

test('the first attempt is made at once, the later ones after a random part of up to 5 s', async () => {
  for (const [random, pauses] of [
    [() => 0.999, [999, 1998, 3996, 4995, 4995]],
    [() => 0.5, [500, 1000, 2000, 2500, 2500]],
  ]) {
    const w = attached({ random });
    w.last().drop();
    assert.equal(w.sockets.length, 2);
    let count = 2;
    for (const pause of pauses) {
      w.last().drop();
      await w.clock.advance(pause - 1);
      assert.equal(w.sockets.length, count);
      await w.clock.advance(1);
      assert.equal(w.sockets.length, ++count);
    }
  }
});

test('one attempt is under way at a time', async () => {
  const w = attached();
  w.last().drop();
  w.page.fire('online');
  w.page.fire('pageshow');
  w.page.show('visible');
  await w.clock.advance(3_000);
  assert.equal(w.sockets.length, 2);
});

test('connections that come to nothing, one after the other, are not replaced at once for ever', () => {
  const w = attached();
  let made = 0;
  for (; (made < 20 && w.last().readyState === 0) || made === 0; made++) {
    if (made > 0) w.last().resume();
    w.last().drop();
  }
  assert.equal(made, 4);
  assert.equal(w.last().readyState, 3, 'the next attempt waits');
  const useful = attached();
  for (let i = 0; i < 20; i++) {
    useful.last().receive('news');
    useful.last().drop();
    useful.last().resume({ replay: 1 });
  }
  assert.equal(useful.socket.detached, false);
});

test('giveUpAfter, or grace + 2 x heartbeat where that is longer, bounds an outage: then error and close 1006', async () => {
  const w = attached({ first: { grace_ms: 10_000, heartbeat_ms: 2_000 }, options: { giveUpAfter: 13_000 } });
  w.last().drop();
  await unreachable(w, 13_900);
  assert.equal(w.socket.readyState, 1);
  await unreachable(w, 150);
  assert.equal(w.socket.readyState, 3);
  assert.deepEqual(
    w.log.filter((line) => !line.startsWith('detach')),
    ['error', 'close 1006  unclean'],
  );
  const count = w.sockets.length;
  await w.clock.advance(600_000);
  assert.equal(w.sockets.length, count);
  assert.equal(w.clock.pending, 0, 'no timer is left behind');
});

test('a changed grace period counts', async () => {
  const w = attached({ first: { grace_ms: 1_000, heartbeat_ms: 1_000 }, options: { giveUpAfter: 0 } });
  w.last().control('grace', 20_000);
  w.last().drop();
  await unreachable(w, 21_900);
  assert.equal(w.socket.readyState, 1);
  await unreachable(w, 200);
  assert.equal(w.socket.readyState, 3);
});

test('a grace period that became longer while the client was away is used: it tries on, more and more rarely', async () => {
  const w = attached({ first: { grace_ms: 2_000, heartbeat_ms: 1_000 } });
  w.last().drop();
  const at = [];
  for (let t = 0, seen = w.sockets.length; t < 590_000; t += 50) {
    if (w.sockets.length > seen) at.push(t);
    seen = w.sockets.length;
    await unreachable(w, 50);
  }
  const pauses = at.map((t, i) => t - (at[i - 1] ?? 0));
  assert.equal(w.socket.readyState, 1, 'ten minutes are not over');
  assert.ok(Math.max(...pauses.slice(0, 10)) <= 5_100, `${pauses}`);
  assert.ok(Math.max(...pauses) > 15_000 && Math.max(...pauses) < 45_000, `${pauses}`);
  await w.clock.advance(45_000);
  assert.equal(w.socket.readyState, 3, 'nobody has answered for ten minutes');

  const kept = attached({ first: { grace_ms: 2_000, heartbeat_ms: 1_000 } });
  kept.last().drop();
  await unreachable(kept, 67_000);
  await kept.clock.advance(10_000);
  kept.last().resume();
  assert.equal(kept.socket.detached, false, 'the gateway had kept it');
});

test('an attempt that does not open is abandoned after 4 s, and what it still brings is ignored', async () => {
  const w = attached();
  w.last().drop();
  const hung = w.last();
  await w.clock.advance(3_999);
  assert.equal(hung.closed, null);
  await w.clock.advance(1);
  assert.deepEqual(hung.closed, []);
  const next = w.last();
  assert.notEqual(next, hung, 'the next follows at once');
  hung.resume({ token: 'of.the.abandoned' });
  hung.receive('data');
  assert.deepEqual(hung.sent, []);
  assert.equal(w.socket.detached, true);
  next.resume();
  assert.deepEqual(w.log, ['detach 1', 'detach 2', 'resume 0 0', 'replayed']);
});

test('a resume waits for hello at least 15 s after its 101, and is never followed by a plain connection', async () => {
  const w = attached();
  w.last().drop();
  w.last().open();
  await w.clock.advance(15_000);
  assert.equal(w.last().closed, null);
  w.last().hello({ resumed: true });
  assert.equal(w.socket.detached, false);
  w.last().drop();
  for (let i = 0; i < 4; i++) {
    if (w.last().readyState === 0) w.last().open();
    await w.clock.advance(12_000);
    for (const s of w.sockets.slice(1)) assert.ok(s.protocols.includes('reseat.v1'));
  }
});

test('an attempt answered before the time was over is waited for', async () => {
  const w = attached({ options: { giveUpAfter: 0 } });
  w.last().drop();
  await unreachable(w, GIVE_UP - 3_000);
  await w.clock.advance(2_900); // pauses are at most 2.5 s here: one is under way
  w.last().open();
  await w.clock.advance(10_000);
  w.last().hello({ resumed: true });
  assert.equal(w.socket.detached, false);
});

test('attempts that hang do not keep the socket open', async () => {
  const w = attached({ options: { giveUpAfter: 0 } });
  w.last().drop();
  await w.clock.advance(GIVE_UP);
  assert.equal(w.socket.readyState, 3);
});

test('retry_after_ms is obeyed, on a live connection and at a refusal', async () => {
  const w = attached();
  w.last().control('close', { code: 4503, reason: 'draining', retry: true, retry_after_ms: 7_000 });
  w.last().end(4503);
  w.page.fire('online'); // no reason to come earlier
  w.page.show('visible');
  await w.connectsAfter(7_000);
  w.last().open();
  w.last().control('close', { code: 4429, reason: 'too fast', retry: true, retry_after_ms: 100_000 });
  w.last().end(4429);
  await w.clock.advance(99_999);
  assert.equal(w.sockets.length, 2);
  assert.equal(w.socket.readyState, 1, 'though its own time would be over');
  await w.clock.advance(1);
  assert.equal(w.sockets.length, 3);
  await w.clock.advance(1_000);
  w.last().resume();
  assert.equal(w.socket.detached, false);
});

test('a close without retry ends with its code, wasClean and no error', () => {
  const verdicts = [
    [1002, 'protocol_error'],
    [4400, 'protocol violation'],
    [4408, 'window'],
    [4410, 'idle timeout'],
    [4502, 'upstream lost'],
    [4409, 'superseded'],
  ];
  for (const [code, reason] of verdicts) {
    const live = attached();
    live.last().control('close', { code, reason, retry: false });
    assert.equal(live.socket.readyState, 2);
    assert.deepEqual(live.log, []);
    live.last().end(code, reason);
    assert.deepEqual(live.log, [`close ${code} ${reason}`]);
    assert.equal(live.sockets.length, 1);

    const refused = attached();
    refused.last().drop();
    refused.last().open();
    refused.last().control('close', { code, reason, retry: false });
    refused.last().end(code, reason);
    assert.deepEqual(refused.log, ['detach 1', `close ${code} ${reason}`]);
    assert.equal(refused.sockets.length, 2);
  }
});

test('end gives its code and reason, whatever becomes of the Close frame', async () => {
  for (const after of [(w) => w.last().end(4000, 'over'), (w) => w.last().drop(), (w) => w.clock.advance(2_000)]) {
    const w = attached();
    w.last().receive('last words');
    w.last().control('end', { code: 4000, reason: 'match over' });
    assert.equal(w.socket.readyState, 2);
    w.socket.send('too late');
    await after(w);
    assert.deepEqual(w.log, ['last words', 'close 4000 match over']);
    assert.deepEqual(w.last().take(), []);
    assert.equal(w.socket.bufferedAmount, 8);
  }
});

test('the first verdict counts, and nothing after it', () => {
  const w = attached();
  w.last().control('end', { code: 4000, reason: 'match over' });
  w.last().control('close', { code: 1011, reason: 'late', retry: true });
  w.last().receive('late');
  w.last().end(1011);
  assert.deepEqual(w.log, ['close 4000 match over']);
});

test('a refusal of a token or count that are no longer the newest is no verdict', async () => {
  const w = attached();
  w.last().control('move', { within_ms: 0 });
  await w.clock.advance(0);
  w.sockets[0].control('token', { token: 'new.t' });
  w.sockets[0].drop();
  w.sockets[1].verdict(4401, 'bad token');
  await w.clock.advance(5_000);
  assert.equal(w.last().stated.token, 'new.t');
  w.last().verdict(4401, 'bad token');
  assert.deepEqual(w.log.at(-1), 'close 4401 bad token');
});

test("a game server's own 4409 is its end", async () => {
  const w = attached();
  w.last().drop();
  await w.clock.advance(4_000);
  w.last().resume();
  w.last().control('end', { code: 4409, reason: 'its own' });
  w.last().end(4409, 'its own');
  assert.deepEqual(w.log.at(-1), 'close 4409 its own');
});

const drop = (w) => w.last().drop();
const abandon = (w) => w.clock.advance(4_000);
const next = (w) => w.clock.advance(2_500);
const resume =
  (token = 'a.t') =>
  (w) =>
    w.last().resume({ token });
const superseded = (w) => w.last().verdict(4409, 'superseded');
const refused = (w) => w.last().verdict(4429, 'too fast', { retry: true });
const opened = (w) => w.last().open();
const moving = async (w) => {
  w.last().control('move', { within_ms: 0 });
  await w.clock.advance(0);
};

/**
 * What happens before the newest connection, or the first one, says 4409, and whether that ends the session. The first
 * ack of a connection may have been lost with it: then the generation that an abandoned attempt came with is still good,
 * and takes the place of the one that waits (--disconnect hard).
 * @type {[string, ((w: any) => any)[], { ends?: boolean, on?: number }?][]}
 */
const SUPERSEDED = [
  ['while another attempt is under way', [moving], { on: 0 }],
  ['on the old connection after a move whose hello was lost', [moving, opened, drop], { on: 0 }],
  ['after an attempt that was abandoned since the hello before', [drop, abandon, resume()]],
  ['a second time after that', [drop, abandon, resume(), superseded, resume()], { ends: true }],
  ['on an attempt that waits, after an abandoned one', [drop, abandon]],
  ['on one that waits, and one was abandoned before the newest hello', [drop, abandon, resume('b.t'), drop, next]],
  [
    'on one that waits, two hellos after the abandoned one',
    [drop, abandon, resume('b.t'), drop, next, superseded, next, resume('c.t'), drop, next],
    { ends: true },
  ],
  ['after an attempt that broke', [drop, drop, next, resume()]],
  ['after an attempt that opened and broke', [drop, opened, drop, next, resume()]],
  ['after an attempt that was refused', [drop, refused, next, resume()], { ends: true }],
];
for (const [claim, story, { ends = false, on } = {}] of SUPERSEDED)
  test(`4409 ${claim} is ${ends ? 'the end' : 'no verdict: it resumes'}`, async () => {
    const w = attached();
    for (const step of story) await step(w);
    const conn = on === undefined ? w.last() : w.sockets[on];
    conn.verdict(4409, 'superseded');
    conn.end(4409, 'superseded');
    if (ends) return assert.equal(w.log.at(-1), 'close 4409 superseded');
    await next(w);
    assert.notEqual(w.last(), conn);
    w.last().resume();
    return assert.deepEqual([w.socket.detached, w.log.slice(-2)], [false, ['resume 0 0', 'replayed']]);
  });

test('move: a new connection within the time asked for, the old one works until its hello', async () => {
  const w = attached({ random: () => 0.25 });
  w.last().control('move', { within_ms: 8_000, reason: 'rebalance' });
  await w.connectsAfter(2_000);
  w.sockets[0].receive('still here');
  w.socket.send('and so am I');
  assert.ok(w.sockets[0].take().includes('and so am I'));
  w.sockets[1].resume({ received: 1, replay: 1 });
  w.sockets[1].receive('still here');
  w.sockets[0].end(4409);
  w.socket.send('moved');
  assert.deepEqual(w.sockets[1].take(), ['^ack 0', 'moved']);
  assert.deepEqual(w.log, ['still here', 'resume 1 0', 'replayed']);
  assert.equal(w.socket.detached, false);
});

test('a move that fails is tried again in time, and a refused one is let be', async () => {
  const w = attached();
  w.last().control('move', { within_ms: 8_000 });
  await w.clock.advance(4_000);
  w.sockets[1].drop();
  await w.clock.advance(4_000);
  assert.equal(w.sockets.length, 3);
  w.sockets[2].verdict(4404, 'no session');
  await w.clock.advance(20_000);
  assert.equal(w.sockets.length, 3);
  assert.deepEqual(w.log, []);
  assert.equal(w.socket.readyState, 1);
});

test('a second move makes no second attempt', async () => {
  const w = attached();
  for (let i = 0; i < 2; i++) {
    w.sockets[0].control('move', { within_ms: 0 });
    await w.clock.advance(10);
  }
  assert.equal(w.sockets.length, 2);
});

test('a move with a later time waits', async () => {
  const w = attached();
  w.last().control('move', { within_ms: 20_000 });
  await w.clock.advance(10_000);
  w.sockets[1].open();
  w.sockets[1].control('close', { code: 4429, reason: 'too fast', retry: true, retry_after_ms: 6_000 });
  await w.clock.advance(5_999);
  w.sockets[0].control('ping', '1');
  assert.equal(w.sockets.length, 2);
  await w.clock.advance(4_000);
  assert.equal(w.sockets.length, 3);
});

test('an old connection that dies during a move leaves the attempt as the way back', async () => {
  const w = attached();
  w.last().control('move', { within_ms: 0 });
  await w.clock.advance(0);
  w.sockets[0].drop();
  assert.equal(w.sockets.length, 2);
  w.sockets[1].drop();
  await w.clock.advance(500);
  assert.equal(w.sockets.length, 3);
  w.last().resume();
  assert.equal(w.socket.detached, false);
});

test('a transport that cannot be made any more is an attempt that failed', async () => {
  const w = attached({ random: () => 0 });
  w.Transport.refuse = true;
  w.last().drop();
  await w.clock.advance(0);
  assert.equal(w.socket.detached, true);
  w.Transport.refuse = false;
  await w.clock.advance(50);
  w.last().resume();
  assert.equal(w.socket.detached, false);
});

test('a heartbeat of the game stands in for itself while detached, and its answer goes nowhere', async () => {
  const w = attached({ options: { keepalive: { receive: '2', answer: '3', every: 5_000 } } });
  const beats = () => w.log.filter((entry) => entry === '2').length;
  await w.clock.advance(12_000);
  assert.equal(beats(), 0, 'attached, the game server sends its own');
  w.last().receive('2');
  w.socket.send('3');
  assert.deepEqual(w.last().takeData(), ['3']);
  const origins = [];
  w.socket.addEventListener('message', ({ origin }) => origins.push(origin));
  w.last().drop();
  await w.clock.advance(9_000);
  assert.equal(beats(), 1 + 2);
  assert.deepEqual(origins, ['', ''], 'an application can tell it from one of the game server');
  w.socket.send('3');
  w.socket.send('news');
  w.last().resume({ received: 1 });
  assert.deepEqual(w.last().take(), ['^ack 1', 'news']);
  w.last().receive('2');
  w.socket.send('3');
  assert.deepEqual(w.last().take(), ['3'], "the next answer is the game server's again");
});

test('a heartbeat stands in first thing after a sleep, before any watchdog', async () => {
  const w = attached({ options: { keepalive: 'engine.io' } });
  w.clock.freeze(60_000);
  await w.clock.advance(0);
  assert.ok(w.log.includes('2'), w.log.join());
});

test('a heartbeat of bytes stands in as bytes, a new copy each time', async () => {
  const given = new Uint8Array([9, 1, 1, 0, 9]);
  for (const [keepalive, every] of [
    ['y-websocket', 5_000],
    [{ receive: given.subarray(1, 4), every: 1_000 }, 1_000],
    [{ receive: given.slice(1, 4).buffer, every: 1_000 }, 1_000],
  ]) {
    const w = attached({ options: { keepalive } });
    w.socket.binaryType = 'arraybuffer';
    given.fill(7); // ours is a copy
    w.last().drop();
    w.take();
    await w.clock.advance(every);
    await w.clock.advance(every);
    const beats = w.log.filter((entry) => entry instanceof ArrayBuffer);
    assert.deepEqual(
      beats.map((beat) => [...new Uint8Array(beat)]),
      [
        [1, 1, 0],
        [1, 1, 0],
      ],
    );
    assert.notEqual(beats[0], beats[1]);
    given.set([9, 1, 1, 0, 9]);
  }
});

test('what the application sends after a heartbeat without an answer is its own', async () => {
  const w = attached({ options: { keepalive: 'y-websocket' } });
  w.last().drop();
  await w.clock.advance(5_000);
  w.socket.send('1');
  w.last().resume();
  assert.deepEqual(w.last().take(), ['^ack 0', '1']);
});

test('a heartbeat stands in while the connection is suspected, too', async () => {
  const w = attached({ options: { keepalive: { receive: '2', answer: '3', every: 1_000 } } });
  for (let i = 0; i < 3; i++) w.last().receive('tick');
  await w.clock.advance(4_000);
  assert.equal(w.socket.detached, true);
  w.take();
  await w.clock.advance(1_000);
  assert.deepEqual(w.take(), ['2']);
  w.socket.send('3');
  assert.ok(!w.sockets[0].take().includes('3'), 'the answer goes nowhere');
});

test('a heartbeat stands in at once when the connection is lost, whenever the last one was', async () => {
  const w = attached({ options: { keepalive: { receive: '2', answer: '3', every: 5_000 } } });
  await w.clock.advance(1_000);
  w.last().drop();
  assert.deepEqual(w.take(), ['detach 1', '2']);
  await w.clock.advance(4_999);
  assert.ok(!w.log.includes('2'));
  await w.clock.advance(1);
  assert.ok(w.log.includes('2'));
});

test("a heartbeat stands in as soon as the gateway's own is overdue, before the connection is given up", async () => {
  const w = attached({
    first: { answer_ms: 5_000 },
    options: { keepalive: { receive: '2', answer: '3', every: 5_000 } },
  });
  await w.clock.advance(17_499);
  assert.deepEqual(w.take(), []);
  await w.clock.advance(1);
  assert.deepEqual([w.take(), w.sockets.length], [['2'], 1]);
  w.last().take();
  w.socket.send('3');
  assert.deepEqual(w.last().take(), [], 'the answer goes nowhere');
});

test('a keepalive that is none is an error of the constructor', () => {
  for (const keepalive of [
    'socket.io',
    5,
    {},
    { receive: '2', answer: '3' },
    { receive: 2, answer: 3, every: 1 },
    { receive: '2', answer: 3, every: 1 },
    { answer: '3', every: 1 },
  ]) {
    assert.throws(() => attached({ options: { keepalive } }), TypeError);
  }
});

test('each resume offers the route of the newest hello, if it is one', () => {
  const { last } = attached({ first: { route: 'n1' } });
  const routes = () => last().protocols.filter((name) => name.startsWith('reseat.route.'));
  assert.deepEqual(routes(), [], 'the first handshake has none');
  for (const [route, offered] of [
    ['n1', ['reseat.route.n1']],
    ['n2', ['reseat.route.n1']],
    [undefined, ['reseat.route.n2']],
    ['a blank', []],
    ['a,b', []],
    ['', []],
    [7, []],
    ['eu-1.example', []],
    ['n1', ['reseat.route.eu-1.example']],
  ]) {
    last().receive('news');
    last().drop();
    assert.deepEqual(routes(), offered);
    last().resume({ route });
  }
});
