import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { attached, said, world } from './helpers.js';

// A line that dies in silence: the answer rule, suspicion, the way back, and the events of the page.

/** A hello that leaves the heartbeat out of it. */
const QUIET = { answer_ms: 5_000, heartbeat_ms: 0, grace_ms: 600_000 };

/** Without the answer rule, too. */
const NO_ANSWER = { ...QUIET, answer_ms: 0 };

/** An attached world under the answer rule. */
const under = (first = {}, more = {}) => attached({ ...more, first: { ...QUIET, ...first } });

const pings = (transport) => transport.takeControls('ping ');
const controls = (transport) => transport.takeControls('');

/** Lets the client measure a round trip. */
async function measure(w, ms) {
  w.page.fire('online');
  await w.clock.advance(ms);
  assert.equal(w.last().pong(), 1);
}

/** A data message every so often; nobody pings meanwhile. */
async function ticks(w, every, count) {
  for (let i = 0; i < count; i++) {
    if (i > 0) await w.clock.advance(every);
    w.last().receive('tick');
  }
  assert.deepEqual(pings(w.last()), []);
  w.take();
}

/** A tick game. */
async function ticking(first, more) {
  const w = under(first, more);
  await ticks(w, 100, 10);
  return w;
}

/** A tick game whose connection has just been suspected: `old` is silent, `beside` is the attempt. */
async function suspected(first) {
  const w = await ticking(first);
  await w.clock.advance(4_000);
  assert.equal(w.states.at(-1), 'suspected');
  w.take();
  const [old, beside] = w.sockets;
  old.take();
  return { ...w, w, old, beside };
}

const BACK = ['resume 0 0', 'replayed'];

describe('the answer rule', () => {
  test('unanswered data: a ping after each half of answer_ms in silence, dead after the whole', async () => {
    const w = under();
    await measure(w, 50);
    await w.clock.advance(60_000);
    w.socket.send('x');
    w.last().take();
    await w.pingsAfter(2_500);
    await w.connectsAfter(2_500);
    assert.deepEqual([w.sockets[0].closed, w.states.at(-1), w.log], [[], 'detached', ['detach 1']]);
  });

  /** How long a connection lives after what is done to it. @type {[string, (w: any) => any, number, object?][]} */
  const LIVES = [
    ['without answer_ms, by the heartbeat', (w) => w.socket.send('x'), 30_000, { answer_ms: 0, heartbeat_ms: 15_000 }],
    [
      'likewise where it is not given',
      (w) => w.socket.send('x'),
      30_000,
      { answer_ms: undefined, heartbeat_ms: 15_000 },
    ],
    ['at least 5 s before a round trip is known', (w) => w.socket.send('x'), 5_000, { answer_ms: 1_000 }],
    ['from a bye on, which is owed an answer too', (w) => w.socket.close(4001), 5_000],
    [
      'from the ack on, where a second message is unanswered: the clock starts anew with whatever is heard',
      async (w) => {
        await measure(w, 50);
        w.socket.send('1');
        await w.clock.advance(2_000);
        w.socket.send('2');
        await w.clock.advance(1_000);
        assert.equal(pings(w.last()).length, 1, 'of the first message');
        w.last().control('ack', 1);
      },
      5_000,
    ],
    [
      'from the ack on, which is no answer to a ping',
      async (w) => {
        await measure(w, 50);
        w.socket.send('x');
        await w.clock.advance(2_500);
        w.last().control('ack', 1);
      },
      5_000,
    ],
    [
      'four round trips after the first ping, smoothed over the connections of a session',
      async (w) => {
        await measure(w, 1_600);
        w.last().drop();
        w.last().resume(QUIET);
        await measure(w, 2_400); // 1,600 + (2,400 - 1,600) / 8
        w.socket.send('x');
      },
      2_500 + 4 * 1_700,
    ],
    [
      'by a round trip that is from a ping to its own answer',
      async (w) => {
        w.socket.send('x');
        await w.clock.advance(2_500);
        const [first] = pings(w.last());
        await w.clock.advance(2_400);
        w.last().receive('late');
        w.last().control('pong', 'some other');
        const second = await w.pingsAfter(2_500);
        await w.clock.advance(100);
        w.last().control('pong', second); // 100 ms; 5,000 ms for the first would not have been it
        w.last().control('pong', first.slice('^ping '.length)); // answered by the newer one
      },
      5_000,
    ],
    [
      'from the last bytes on that its transport has taken',
      async (w) => {
        await measure(w, 50);
        w.socket.send('a large one');
        const transport = w.last();
        for (transport.bufferedAmount = 5_000_000; transport.bufferedAmount > 0; transport.bufferedAmount -= 100_000)
          await w.clock.advance(500);
        assert.equal(w.sockets.length, 1);
      },
      7_500,
    ],
    [
      "though the machine's own buffers take what is sent to a dead line",
      async (w) => {
        await measure(w, 50);
        w.socket.send('first');
        await w.clock.advance(10); // so that the client looks while some are on their way
        for (let t = 0; t < 4_950; t += 50) {
          await w.clock.advance(25);
          w.socket.send('tick');
          w.last().bufferedAmount = 6_000 - t;
          await w.clock.advance(25);
          w.last().bufferedAmount = 0;
        }
      },
      40,
    ],
    [
      'for heartbeat and answer_ms where it is idle, whichever side owed a message',
      async (w) => {
        for (let i = 0; i < 5; i++) {
          await w.clock.advance(15_100);
          w.last().control('ping', 'hb');
        }
        w.last().take();
        await w.pingsAfter(17_500, 'heartbeat and half of answer_ms');
      },
      2_500,
      { heartbeat_ms: 15_000 },
    ],
  ];
  for (const [claim, before, ms, first] of LIVES)
    test(`a silent connection lives ${claim}`, async () => {
      const w = under(first);
      await before(w);
      await w.connectsAfter(ms);
    });

  test('a line on which nothing is owed is not judged', async () => {
    const w = under();
    w.socket.send('1');
    w.last().control('ack', 1);
    w.last().take();
    await w.clock.advance(600_000);
    assert.deepEqual([w.sockets.length, w.last().take()], [1, []]);
  });

  test('a missing ack alone never kills', async () => {
    const w = under();
    w.socket.send('x');
    for (let i = 0; i < 100; i++) {
      await w.clock.advance(2_500);
      assert.equal(w.last().pong(), 1);
    }
    assert.equal(w.sockets.length, 1);
    w.last().control('ack', 1);
    await w.clock.advance(600_000);
    assert.equal(pings(w.last()).length, 0);
  });

  test('messages that a hello says are received are owed no answer, though they are not acked', async () => {
    const w = under();
    w.socket.send('x');
    w.last().drop();
    w.last().resume({ answer_ms: 5_000, heartbeat_ms: 0, received: 1 });
    await measure(w, 0);
    await w.clock.advance(600_000);
    assert.deepEqual([w.sockets.length, pings(w.last())], [2, []]);
  });

  test('all times double for each connection in a row that ended in silence, until a new data message: a repeat is none', async () => {
    const w = under();
    await measure(w, 50);
    w.last().receive('one');
    for (const [scale, news] of [
      [1, []],
      [2, []],
      [4, []],
      [8, []],
      [8, ['two']],
      [1, []],
      [2, []],
    ]) {
      w.socket.send('x');
      await w.connectsAfter(scale * 5_000);
      w.last().resume({ ...QUIET, replay: news.length });
      for (const data of news) w.last().receive(data);
      w.last().control('ack', 0);
    }
  });
});

describe('a page that stood still', () => {
  test('reads what waits before it judges', async () => {
    for (const blocked of [1_900, 3_000, 4_900, 6_000, 20_000]) {
      const w = under({ heartbeat_ms: 15_000 });
      await measure(w, 50);
      w.socket.send('x');
      await ticks(w, 100, 10);
      w.clock.freeze(blocked);
      await w.clock.advance(0); // timers first
      for (let i = 0; i < 10; i++) {
        await w.clock.advance(10);
        w.last().receive('waited');
      }
      await w.clock.advance(1_000);
      w.last().receive('tick');
      w.last().pong();
      await w.clock.advance(1_900);
      assert.deepEqual([w.sockets.length, w.log.filter((line) => !/tick|waited/.test(line))], [1, []], `${blocked}`);
    }
  });

  test('has learned nothing of the line from its own pause', async () => {
    const w = under();
    await ticks(w, 100, 5);
    for (let i = 0; i < 2; i++) {
      w.clock.freeze(3_000);
      w.last().receive('waited');
      await w.clock.advance(300);
    }
    await w.clock.advance(4_000);
    assert.equal(w.states.at(-1), 'suspected');
  });

  test('with timers that are a second late finds a dead line in the end, and never a live one', async () => {
    const w = world({
      runtime: {
        setTimeout: (run, ms) =>
          w.clock.setTimeout(run, Math.ceil((w.clock.mono + ms + 1) / 1_000) * 1_000 - w.clock.mono),
      },
    });
    w.last().attach({ answer_ms: 5_000 });
    w.page.show('hidden');
    w.last().take();
    for (let i = 0; i < 600; i++) {
      await w.clock.advance(330);
      w.last().receive('tick');
      if (i % 10 === 0) w.socket.send('x');
      if (i % 10 === 5) w.last().control('ack', Math.floor(i / 10) + 1);
      assert.equal(w.last().pong(), 0, 'no ping on a live line');
    }
    assert.equal(w.sockets.length, 1);
    const silent = w.clock.mono;
    while (w.sockets.length === 1) await w.clock.advance(100);
    assert.ok(w.clock.mono - silent < 15_000, `${w.clock.mono - silent}`);
  });

  test('that lost its line finds out, once what waits is read', async () => {
    const w = under();
    await measure(w, 50);
    w.socket.send('x');
    await w.clock.advance(2_500);
    w.clock.freeze(4_000);
    await w.clock.advance(0);
    assert.equal(w.sockets.length, 1);
    await w.clock.advance(250);
    assert.equal(w.sockets.length, 2);
  });

  test('and pinged late waits for the answer as long as ever', async () => {
    const w = under();
    await measure(w, 50);
    w.socket.send('x');
    w.clock.freeze(4_800); // its ping is 2.3 s late
    await w.clock.advance(250);
    assert.equal(pings(w.last()).length, 1);
    await w.connectsAfter(2_500);
  });

  test('an answer that waits in the page since it asked is read first', async () => {
    const w = under();
    w.page.fire('online');
    w.clock.freeze(3_000);
    await w.clock.advance(0);
    assert.equal(w.last().pong(), 1);
    await w.clock.advance(20_000);
    assert.equal(w.sockets.length, 1);
  });

  test('an attempt whose 101 waits in the page is not given up', async () => {
    const w = under();
    w.last().drop();
    w.clock.freeze(4_500);
    await w.clock.advance(0);
    w.last().resume(QUIET);
    assert.deepEqual([w.sockets.length, w.socket.detached], [2, false]);
  });

  test('a round trip that it slept through is none', async () => {
    const w = under();
    w.page.fire('online');
    const [ping] = pings(w.last());
    w.clock.freeze(3_600_000);
    w.last().control('pong', ping.slice('^ping '.length));
    assert.equal(w.last().pong(), 1, 'the answer to the one after the sleep');
    w.socket.send('x');
    await w.connectsAfter(5_000);
  });
});

describe('suspicion', () => {
  test('a tick game: a ping after 2 s, and after 2 s more a resume beside the old connection', async () => {
    const w = under(NO_ANSWER);
    const events = details(w);
    await ticks(w, 100, 20);
    const since = w.clock.mono + w.clock.away;
    await w.pingsAfter(2_000);
    assert.deepEqual(w.log, []);
    await w.connectsAfter(2_000);
    assert.deepEqual([w.sockets[0].closed, w.states.at(-1)], [null, 'suspected']);
    assert.deepEqual([w.socket.readyState, w.socket.detached, w.log], [1, true, ['detach 1']]);
    assert.deepEqual(w.last().stated, { token: 'h.p.s', received: '20' });
    await w.clock.advance(100);
    w.last().resume({ ...QUIET, replay: 1 });
    w.last().receive('the rest');
    assert.deepEqual(w.sockets[0].closed, []);
    assert.deepEqual(w.log, ['detach 1', 'resume 1 0', 'the rest', 'replayed']);
    assert.deepEqual(events, [
      { attempt: 1, since },
      { replay: 1, lost: 0, skipped: 0, ms: 4_100 },
    ]);
    assert.equal(w.states.at(-1), 'attached');
  });

  test('two messages are enough to begin with', async () => {
    const w = under();
    await ticks(w, 500, 2);
    await w.clock.advance(4_000);
    assert.equal(w.states.at(-1), 'suspected');
  });

  /** How long a lively line is silent before its client pings. @type {[string, (w: any) => Promise<void>, number][]} */
  const USUAL = [
    [
      'four times the longest usual gap',
      async (w) => {
        await ticks(w, 1_500, 10);
        await ticks(w, 100, 10);
      },
      6_000,
    ],
    [
      'no longer for one long gap, which is an accident',
      async (w) => {
        await ticks(w, 100, 10);
        await w.clock.advance(1_500);
        await ticks(w, 100, 10);
      },
      2_000,
    ],
    [
      'no longer for what was usual a minute ago',
      async (w) => {
        await ticks(w, 1_500, 10);
        await ticks(w, 100, 610);
      },
      2_000,
    ],
    [
      'as long as was usual on the connection before; an outage is no gap',
      async (w) => {
        await ticks(w, 100, 10);
        for (let i = 0; i < 2; i++) {
          w.last().drop();
          await w.clock.advance(3_000);
          w.last().resume(QUIET);
          w.last().receive('tick');
        }
      },
      2_000,
    ],
    [
      'no longer for a stall that data ended',
      async (w) => {
        await ticks(w, 100, 10);
        for (let i = 0; i < 2; i++) {
          await w.clock.advance(3_000);
          w.last().receive('at last');
          assert.equal(w.last().pong(), 1);
        }
        await ticks(w, 100, 260); // the budget was spent
      },
      2_000,
    ],
  ];
  for (const [claim, play, ms] of USUAL)
    test(`silence is ${claim}`, async () => {
      const w = under();
      await play(w);
      w.last().take();
      await w.pingsAfter(ms);
    });

  test('four round trips are waited for', async () => {
    const w = under(NO_ANSWER);
    await measure(w, 1_500);
    await ticks(w, 100, 10);
    await w.connectsAfter(2_000 + 6_000);
  });

  test('a handshake stands in for a round trip that is not known, up to 4 s, and the fastest counts', async () => {
    for (const [handshakes, wait] of [
      [[3_000], 3_000],
      [[4_900], 4_000],
      [[3_000, 200], 2_000],
    ]) {
      const w = world();
      for (const [i, ms] of handshakes.entries()) {
        if (i > 0) w.last().drop();
        await w.clock.advance(ms);
        w.last().attach({ ...NO_ANSWER, resumed: i > 0 });
      }
      await ticks(w, 100, 10);
      await w.connectsAfter(2_000 + wait, `${handshakes}`);
    }
  });

  test('a page that is shown again waits as long for its answer', async () => {
    const w = world();
    await w.clock.advance(3_000);
    w.last().attach(QUIET);
    w.page.fire('online');
    await w.connectsAfter(3_000);
  });

  test('a line that was just quiet is not lively again until data comes', async () => {
    const w = await ticking();
    await w.clock.advance(2_000);
    assert.equal(w.last().pong(), 1);
    for (let i = 0; i < 20; i++) {
      await w.clock.advance(15_000);
      w.last().control('ping', 'hb');
    }
    assert.deepEqual([pings(w.last()), w.log], [[], []]);
  });

  test('nothing is suspected once the application has closed', async () => {
    const w = await ticking(NO_ANSWER);
    w.socket.close();
    w.last().take();
    await w.clock.advance(4_500);
    assert.deepEqual([w.sockets.length, w.last().take()], [1, []]);
  });

  /** Three minutes of a game that answers every ping in 50 ms. @returns when the client pinged */
  async function play(next) {
    const w = under({ heartbeat_ms: 15_000 });
    const when = [];
    let due = next(0);
    for (let t = 0; t < 180_000; t += 50) {
      if (t % 15_000 === 0) w.last().control('ping', 'hb');
      if (t >= due) {
        w.last().receive('tick');
        due = next(t);
      }
      await w.clock.advance(50);
      if (w.last().pong() > 0) when.push(t);
    }
    assert.equal(w.sockets.length, 1);
    assert.ok(w.log.every((line) => line === 'tick'));
    return when;
  }

  test('a lively line costs no ping, a quiet one at most one in 30 s', async () => {
    let seed = 7;
    const random = () => (seed = (seed * 16_807) % 2_147_483_647) / 2_147_483_647;
    const burst = (every) => (t) => (t % every < 200 ? t + 50 : (Math.floor(t / every) + 1) * every);
    const games = {
      'ticks of 50 ms': [(t) => t + 50, 0],
      'ticks of 1.5 s': [(t) => t + 1_500, 0],
      'bursts every 10 s': [burst(10_000), 2],
      'bursts every 25 s': [burst(25_000), 3],
      'a message now and then': [(t) => t - 8_000 * Math.log(1 - random()), Infinity],
      'messages in fits and starts': [(t) => t + (random() < 0.05 ? 20_000 * random() : 300 * random()), Infinity],
      'a greeting': [(t) => (t < 300 ? t + 100 : Infinity), 1],
    };
    for (const [name, [next, most]] of Object.entries(games)) {
      const when = await play(next);
      for (let i = 1; i < when.length; i++) assert.ok(when[i] - when[i - 1] >= 29_950, `${name}: ${when}`);
      assert.ok(when.length <= most, `${name}: ${when}`);
      if (name === 'bursts every 10 s') assert.ok(when.at(-1) < 60_000, `they settle to no ping at all: ${when}`);
    }
  });
});

describe('a false alarm', () => {
  test('before the 101: the attempt is dropped, and nothing shows but detach, resume and replayed', async () => {
    const { w, old, beside } = await suspected();
    const events = details(w);
    w.socket.send('into the dark');
    assert.deepEqual(old.take(), ['into the dark'], 'it still counts');
    await w.clock.advance(700);
    old.receive('at last');
    assert.deepEqual(w.take(), [...BACK, 'at last']);
    assert.deepEqual(events, [{ replay: 0, lost: 0, skipped: 0, ms: 4_700 }]);
    assert.deepEqual([w.states.at(-1), w.socket.detached, beside.closed, old.closed], ['attached', false, [], null]);
    beside.resume(QUIET);
    assert.deepEqual(beside.take(), [], 'what it still brings is ignored');
    assert.equal(old.pong(), 1, 'the answer rule has asked again');
    old.control('ack', 1);
    await ticks({ ...w, last: () => old }, 100, 30);
    assert.equal(w.sockets.length, 2);
  });

  test('by any sign of life', async () => {
    for (const [verb, argument] of [['pong', '1'], ['ping', 'p'], ['ack', 0], ['dance']]) {
      const { w, old, beside } = await suspected();
      old.control(verb, argument);
      assert.deepEqual([w.take(), beside.closed], [BACK, []], verb);
    }
  });

  test('by bytes that the transport goes on taking', async () => {
    const w = await ticking();
    const [old] = w.sockets;
    old.bufferedAmount = 1_000;
    await w.clock.advance(2_000);
    await w.clock.advance(2_000);
    assert.equal(w.states.at(-1), 'suspected');
    old.bufferedAmount = 900;
    await w.clock.advance(2_500);
    assert.equal(w.states.at(-1), 'attached');
  });

  test('what was held back for the attempt is acked then', async () => {
    const { w, old } = await suspected();
    for (let i = 0; i < 40; i++) old.receive('x');
    assert.deepEqual(controls(old).at(-1), '^ack 42', 'as ever, 32 after the last');
    assert.equal(w.states.at(-1), 'attached');
  });

  test('after the 101: the old connection counts until the hello, which takes over', async () => {
    const { w, old, beside } = await suspected();
    beside.open();
    old.receive('eleven');
    old.receive('twelve');
    assert.deepEqual([w.take(), beside.closed, w.socket.detached], [['eleven', 'twelve'], null, true]);
    await w.clock.advance(1_000);
    w.socket.send('up');
    assert.deepEqual(old.take(), ['up'], 'it acks nothing beyond the N that was stated');
    beside.hello({ ...QUIET, resumed: true, received: 1, replay: 3 });
    old.receive('thirteen');
    for (const data of ['eleven', 'twelve', 'thirteen']) beside.receive(data);
    assert.deepEqual(w.take(), ['resume 3 0', 'thirteen', 'replayed']);
    assert.deepEqual([beside.take(), old.closed], [['^ack 10'], []]);
  });

  test('after a 101 without a hello: it is attached again', async () => {
    const { w, old, beside } = await suspected();
    beside.open();
    for (let i = 0; i < 16; i++) {
      old.receive('tick');
      await w.clock.advance(1_000);
    }
    assert.deepEqual([w.states.at(-1), beside.closed, w.sockets.length], ['attached', [], 2]);
    assert.deepEqual(controls(old).at(-1), '^ack 26');
    assert.deepEqual(
      w.take().filter((line) => line !== 'tick'),
      BACK,
    );
  });

  test('4409 on the old connection is neither verdict nor sign of life', async () => {
    for (const opened of [false, true]) {
      const { w, old, beside } = await suspected();
      if (opened) beside.open();
      old.verdict(4409, 'superseded');
      old.end(4409, 'superseded');
      assert.deepEqual([w.take(), w.states.at(-1), beside.closed], [[], 'detached', null]);
      if (!opened) beside.open();
      beside.hello({ ...QUIET, resumed: true });
      assert.deepEqual([w.take(), w.sockets.length], [BACK, 2]);
    }
  });

  test('4409 after an attempt was dropped: it had reached the gateway, so resume once more', async () => {
    const { w, old } = await suspected();
    old.receive('at last');
    old.verdict(4409, 'superseded');
    assert.equal(w.sockets.length, 3);
    w.last().resume(QUIET);
    assert.deepEqual(w.take(), [...BACK, 'at last', 'detach 1', ...BACK]);
  });

  test('where the old connection ends, the attempt goes on, and detach comes once', async () => {
    for (const end of [
      (s) => s.drop(),
      (s) => s.end(1001, 'a proxy'),
      (s) => s.verdict(4503, 'draining', { retry: true }),
    ]) {
      const { w, old, beside } = await suspected();
      beside.open();
      end(old);
      assert.deepEqual([w.take(), w.socket.detached, w.sockets.length], [[], true, 2]);
      beside.hello({ ...QUIET, resumed: true });
      assert.deepEqual(w.take(), BACK);
    }
  });

  test('where it is dead by the answer rule, likewise; later attempts that fail show', async () => {
    const { w, old, beside } = await suspected();
    await w.clock.advance(3_000); // 5 s after the ping
    assert.deepEqual([w.states.at(-1), old.closed, beside.closed, w.take()], ['detached', [], null, []]);
    beside.drop();
    assert.deepEqual(w.take(), ['detach 2']);
    await w.clock.advance(1_000);
    w.last().resume(QUIET);
    assert.deepEqual(w.take(), BACK);
  });

  test('between two attempts, dead by the answer rule: the next one comes at once', async () => {
    const { w, beside } = await suspected();
    beside.drop();
    assert.deepEqual(w.take(), ['detach 2']);
    await w.connectsAfter(3_000, 'one attempt in 4 s');
    assert.deepEqual([w.states.at(-1), w.take()], ['detached', []]);
  });

  test('end and close mean what they say, whatever the attempt does', async () => {
    for (const opened of [false, true]) {
      for (const [verb, argument] of [
        ['end', { code: 4000, reason: 'match over' }],
        ['close', { code: 4410, reason: 'idle timeout', retry: false }],
      ]) {
        const { w, old, beside } = await suspected();
        if (opened) beside.open();
        old.control(verb, argument);
        old.end(argument.code, argument.reason);
        assert.equal(w.take().at(-1), `close ${argument.code} ${argument.reason}`);
        assert.deepEqual([beside.closed, w.clock.pending], [[], 0]);
      }
    }
  });

  test('an attempt that is refused, or brings data before its hello, ends nothing while the old connection may live', async () => {
    for (const spoil of [
      (s) => (s.verdict(4404, 'no session'), s.end(4404)),
      (s) => (s.open(), s.receive('no hello'), assert.deepEqual(s.closed, [])),
    ]) {
      const { w, old, beside } = await suspected(NO_ANSWER);
      spoil(beside);
      assert.deepEqual([w.take(), w.socket.readyState], [['detach 2'], 1]);
      old.receive('at last');
      assert.deepEqual(w.take(), [...BACK, 'at last']);
    }
  });

  test('one with a later time waits, and the session ends no earlier for it', async () => {
    const { w, old, beside } = await suspected({ ...NO_ANSWER, grace_ms: 10_000 });
    beside.verdict(4429, 'too fast', { retry: true, retry_after_ms: 20_000 });
    await w.connectsAfter(20_000);
    await w.clock.advance(3_000);
    old.receive('at last');
    assert.deepEqual(w.take(), ['detach 2', ...BACK, 'at last']);
    await w.clock.advance(20_000);
    assert.equal(w.socket.readyState, 1);
  });

  test('close() while suspected: bye on both, once each', async () => {
    const { w, old, beside } = await suspected();
    w.socket.close(4001, 'left');
    assert.match(old.take().join(), /^\^bye \{"code":4001/);
    assert.equal(w.socket.readyState, 2);
    beside.resume(QUIET);
    assert.match(beside.take().join(), /\^bye \{"code":4001/);
    beside.end(4001, 'left');
    assert.equal(w.take().at(-1), 'close 4001 left');
  });

  test('a ping that asks for the answer to parts confirms no silence: the check that follows must go unanswered', async () => {
    const w = await ticking({ part_bytes: 4096, partial: { down: 0, up: 0 } });
    w.socket.send(new Uint8Array(10_000));
    assert.deepEqual(pings(w.last()), ['^ping 1']);
    await w.clock.advance(3_900);
    assert.deepEqual([w.states.at(-1), pings(w.last())], ['attached', ['^ping 2']]);
    await w.clock.advance(100);
    assert.equal(w.states.at(-1), 'suspected');
  });

  test('a move that is under way when the line falls silent is the attempt', async () => {
    const w = await ticking();
    await w.clock.advance(3_000);
    w.last().control('move', { within_ms: 0 });
    await w.clock.advance(0);
    const [old, moving] = w.sockets;
    moving.open();
    await w.clock.advance(4_000);
    assert.deepEqual([w.states.at(-1), w.sockets.length, w.take()], ['suspected', 2, ['detach 1']]);
    moving.hello({ ...QUIET, resumed: true });
    assert.deepEqual([w.take(), old.closed], [BACK, []]);
  });

  test('attempts come at most once in 4 s, and twice as rarely after each false alarm in a row', async () => {
    const { w, old } = await suspected(NO_ANSWER);
    for (let i = 0; i < 5; i++) await w.connectsAfter(4_000);
    for (const pause of [8_000, 16_000]) {
      old.receive('false');
      while (w.states.at(-1) !== 'suspected') await w.clock.advance(100);
      const { length } = w.sockets;
      while (w.sockets.length === length) await w.clock.advance(100);
      for (let i = 0; i < 2; i++) await w.connectsAfter(pause);
    }
    w.last().resume(NO_ANSWER); // it was right
    w.last().receive('news');
    await w.connectsAfter(4_000);
    for (let i = 0; i < 3; i++) await w.connectsAfter(4_000);
  });

  test('a repeat of what the old connection brought last is no new data', async () => {
    const { w, old, beside } = await suspected();
    beside.open();
    old.receive('eleven');
    await w.clock.advance(5_000);
    assert.deepEqual([w.states.at(-1), beside.closed], ['detached', null]);
    beside.hello({ ...QUIET, resumed: true, replay: 1 });
    beside.receive('eleven');
    await w.connectsAfter(8_000, 'twice the usual time');
  });

  test('the row of false alarms ends where the old connection proves dead', async () => {
    const { w, old } = await suspected(NO_ANSWER);
    old.receive('false');
    await w.clock.advance(8_000);
    assert.equal(w.sockets.length, 3, 'once in 8 s by now');
    old.drop();
    w.last().resume(NO_ANSWER);
    w.last().receive('news');
    await w.connectsAfter(4_000, 'once in 4 s again');
    assert.equal(w.states.at(-1), 'suspected');
  });

  test('a machine that slept while it suspected asks, and resumes by a fresh attempt', async () => {
    for (const slept of [20_000, 3_600_000]) {
      const { w, old, beside } = await suspected({ heartbeat_ms: 15_000 });
      w.clock.freeze(slept);
      await w.clock.advance(2_500);
      assert.deepEqual(beside.closed, [], 'the attempt that slept');
      assert.notEqual(w.last(), beside);
      w.last().resume(QUIET);
      assert.deepEqual([w.socket.detached, old.closed], [false, []]);
    }
  });
});

describe('the way back', () => {
  /** A network that swallows everything until `back`; SYNs go out by the schedule. */
  async function outage(back, { syns, connect = 50, first = 50 }) {
    const w = world({ random: () => 0.999 });
    await w.clock.advance(first);
    w.last().attach({ grace_ms: 600_000, heartbeat_ms: 0 });
    w.last().drop();
    const begun = new Map();
    const start = w.clock.mono;
    for (let t = 0; t < back + 20_000; t += 50) {
      for (const s of w.sockets) if (s.readyState === 0 && !begun.has(s)) begun.set(s, w.clock.mono);
      for (const [s, at] of begun) {
        const heard = syns.map((syn) => at + syn).find((syn) => syn >= start + back);
        if (s.readyState === 0 && heard !== undefined && w.clock.mono >= heard + connect) {
          s.resume();
          return w.clock.mono - start - back;
        }
      }
      await w.clock.advance(50);
    }
    return Infinity;
  }

  const USUAL = [0, 1_000, 3_000, 7_000, 15_000];
  for (const [claim, network, within] of [
    ["within 5 s of the network's return, by the SYNs of most systems", { syns: USUAL }, 5_000],
    ['as soon by those of older ones', { syns: [0, 3_000, 9_000] }, 5_000],
    [
      'on a slow link: no attempt is cut that would have come about',
      { syns: USUAL, connect: 5_200, first: 5_200 },
      11_000,
    ],
  ])
    test(claim, async () => {
      for (let back = 100; back < 15_000; back += 900) {
        const ms = await outage(back, network);
        assert.ok(ms < within, `back ${ms} ms after ${back}`);
      }
    });

  test('an attempt has four round trips to its 101, or the slowest handshake and two lost SYNs', async () => {
    for (const [prepare, limit] of [
      [(w) => measure(w, 1_500), 6_000],
      [() => {}, 4_000],
    ]) {
      const w = under();
      await prepare(w);
      w.last().drop();
      await w.clock.advance(limit - 1);
      assert.equal(w.sockets[1].closed, null);
      await w.clock.advance(1);
      assert.deepEqual(w.sockets[1].closed, []);
    }
    const w = world();
    await w.clock.advance(4_500);
    w.last().attach();
    w.last().drop();
    await w.connectsAfter(8_000);
  });
});

describe('events of the page', () => {
  /** What is done to a world, and what detach and resume then say: ms since the last sign of life. */
  for (const [claim, lose, ms] of [
    ['a loss by silence', (w) => w.clock.advance(20_000), 20_000],
    ['a drop', async (w) => (await w.clock.advance(7_000), w.last().drop()), 7_000],
    [
      'a Close frame, which is a sign of life',
      async (w) => (await w.clock.advance(9_000), w.last().end(1001, 'a proxy')),
      0,
    ],
    [
      "a machine's sleep, though the clock that is never set stood still",
      (w) => (w.clock.freeze(3_600_000, { machine: true }), w.page.show('visible')),
      3_600_000,
    ],
  ])
    test(`times count from the last sign of life: ${claim}`, async () => {
      const w = under({ heartbeat_ms: 15_000 });
      const events = details(w);
      await w.clock.advance(1_000);
      w.last().control('ping', 'hb');
      await lose(w);
      const since = w.clock.mono + w.clock.away - ms;
      await w.clock.advance(300);
      w.last().resume({ answer_ms: 5_000 });
      assert.deepEqual(events, [
        { attempt: 1, since },
        { replay: 0, lost: 0, skipped: 0, ms: ms + 300 },
      ]);
    });

  test('of a move it is the time since anything was heard', async () => {
    const w = under();
    const events = details(w);
    w.last().control('move', { within_ms: 0 });
    await w.clock.advance(120);
    w.sockets[1].resume(QUIET);
    assert.deepEqual(events, [{ replay: 0, lost: 0, skipped: 0, ms: 120 }]);
  });
});

/** The details of detach and resume, as they come. */
function details(w) {
  const events = [];
  for (const type of ['detach', 'resume']) w.socket.addEventListener(type, ({ detail }) => events.push(said(detail)));
  return events;
}
