import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NAMES } from '../client/state.js';
import { ReseatSocket } from '../reseat.js';
import { FakeClock, fakePage, record, runtimeOf, seeded, settle } from './helpers.js';
import { Gateway, Net } from './model.js';

// Whole sessions against a model of the gateway, over a network that cuts and delays at
// random. What one side sent is what the other saw: once, in order, nothing else.

const SEEDS = globalThis.SEEDS ?? 300;

/** SEED=17 node --test test/model.test.js repeats one run. */
const ONLY = Number(globalThis.process?.env.SEED ?? 0);
const seeds = (from, count) =>
  Array.from({ length: count }, (_, i) => from + i).filter((seed) => !ONLY || seed === ONLY);
const named = (seed) => `SEED=${seed} node --test test/model.test.js`;

const CHAOS = 60_000; // ms of faults
const CALM = 90_000; // ms to get over them

const payload = (random, tag, n) => {
  const text = `${['', '\x10', '\x10\x10', '\u20ac'][Math.floor(random() * 4)]}${tag}${n}${'.'.repeat(random() * 60)}`;
  return random() < 0.3 ? new TextEncoder().encode(text).buffer : text;
};
const plain = (data) => (typeof data === 'string' ? data : `binary ${Buffer.from(data).toString()}`);

/** One run. All that happens in it follows from the seed. */
class Run {
  upSent = [];
  downSent = [];
  heard = [];

  states = [];

  constructor(seed, options) {
    this.newest = options?.newest;
    this.random = seeded(seed);
    this.pace = [1, 3][seed % 2]; // on half of the runs the network is left alone long enough for suspicions
    this.clock = new FakeClock();
    this.page = fakePage();
    this.gateway = new Gateway(this.clock, this.random, { answer: [0, 2_000, 5_000][seed % 3], ...options });
    this.net = new Net(this.clock, this.random, this.gateway);
    this.net.calm = true; // the first connection is not what this is about
    const runtime = runtimeOf(this.clock, this.page, {
      random: this.random,
      trace: (state) => this.states.push(NAMES[state]),
    });
    this.socket = new ReseatSocket('ws://model.test/', undefined, {
      WebSocket: this.net.transport(),
      fallback: false,
      runtime,
    });
    this.socket.binaryType = 'arraybuffer';
    this.log = record(this.socket);
    this.socket.addEventListener('message', (event) => this.heard.push(plain(event.data)));
  }

  every(mean, run) {
    const next = () =>
      this.clock.setTimeout(
        () => {
          if (this.net.calm) return;
          run();
          next();
        },
        this.random() * 2 * mean,
      );
    next();
  }

  sendUp() {
    const data = payload(this.random, 'up', this.upSent.length + 1);
    this.upSent.push(plain(data));
    this.socket.send(data);
  }

  sendDown() {
    const data = payload(this.random, 'down', this.downSent.length + 1);
    this.downSent.push(plain(data));
    const key = this.newest && [undefined, undefined, 'a', 'b'][Math.floor(this.random() * 4)];
    this.gateway.send(data, key);
  }

  cut() {
    const ways = this.pace === 1 ? ['reset', 'half', 'hole', 'close', 'stall'] : ['reset', 'hole', 'stall', 'stall'];
    for (const wire of this.net.wires) if (this.random() < 0.7) wire.cut(ways[Math.floor(this.random() * ways.length)]);
  }

  pageEvent() {
    const { page, clock, random } = this;
    const events = [
      () => page.fire('online'),
      () => page.fire('pageshow', { persisted: true }),
      () => page.fire('pagehide', { persisted: true }),
      () => page.show(random() < 0.5 ? 'hidden' : 'visible'),
      () => clock.freeze(random() * 20_000, { machine: random() < 0.5 }),
    ];
    events[Math.floor(random() * events.length)]();
  }

  async chaos() {
    await this.clock.advance(500);
    this.net.calm = false;
    this.every(150, () => this.sendUp());
    this.every(150, () => this.sendDown());
    this.every(2_500 * this.pace, () => this.cut());
    if (this.pace > 1) this.every(10_000, () => this.net.outage(this.random() * 12_000));
    this.every(8_000 * this.pace, () => this.pageEvent());
    this.every(10_000, () => this.gateway.move(this.random() * 3_000));
    this.every(10_000, () => this.gateway.renew());
    this.every(20_000, () => this.gateway.drain(this.random() * 2_000));
    await this.clock.advance(CHAOS);
    this.net.calm = true;
    await this.clock.advance(CALM);
  }
}

/** @param {number} seed */
async function spliced(seed, options) {
  const run = new Run(seed, options);
  const { socket, gateway } = run;
  await run.chaos();
  assert.deepEqual(gateway.violations, [], named(seed));
  assert.deepEqual(
    run.log.filter((line) => /^(close \d|error)/.test(line)),
    [],
    named(seed),
  );
  assert.equal(run.log.filter((line) => line === 'open').length, 1, named(seed));
  assert.deepEqual(gateway.upstream.map(plain), run.upSent, `${named(seed)}: upward`);
  const { dropped, replaced } = gateway;
  const kept = run.downSent.filter((_, i) => !dropped.has(i + 1) && !replaced.has(i + 1));
  if (dropped.size + replaced.size === 0) assert.deepEqual(run.heard, kept, `${named(seed)}: downward`);
  else isSubsequence(run.heard, run.downSent, kept, `${named(seed)}: downward`);
  assert.deepEqual([socket.readyState, socket.detached, socket.bufferedAmount], [1, false, 0], named(seed));
  return run;
}

/** Under drop-oldest or with states: in order, none twice, and nothing missing that was not dropped or replaced. */
function isSubsequence(heard, all, kept, message) {
  let at = 0;
  for (const data of heard) {
    at = all.indexOf(data, at) + 1;
    assert.ok(at > 0, `${message}: ${data} out of order`);
  }
  const seen = new Set(heard);
  assert.deepEqual(
    kept.filter((data) => !seen.has(data)),
    [],
    `${message}: missing`,
  );
}

/** close() during faults comes through as bye, once. */
async function farewell(run, seed) {
  const { socket, net, clock, gateway, random } = run;
  run.log.length = 0;
  if (random() < 0.5) run.cut();
  await clock.advance(random() * 300);
  run.sendUp();
  socket.close(4001, 'done');
  if (random() < 0.5) {
    await clock.advance(random() * 100);
    for (const wire of net.wires) wire.cut('reset');
  }
  await clock.advance(100_000);
  await settle();
  assert.deepEqual(gateway.bye, { code: 4001, reason: 'done' }, named(seed));
  assert.deepEqual(gateway.upstream.map(plain), run.upSent, `${named(seed)}: upward, before bye`);
  assert.deepEqual(
    run.log.filter((line) => /^(close \d|error)/.test(line)),
    ['close 4001 done'],
    named(seed),
  );
  assert.deepEqual(gateway.violations, [], named(seed));
}

test('over any number of cuts every message arrives exactly once and in order, both ways', async () => {
  let resumes = 0;
  const spared = { down: 0, up: 0 };
  const moves = new Map(); // from one state to the next
  for (const seed of seeds(1, SEEDS)) {
    const run = await spliced(seed);
    resumes += run.gateway.resumes;
    for (const way of ['down', 'up']) spared[way] += run.gateway.spared[way];
    for (const [i, state] of run.states.entries()) {
      const move = `${run.states[i - 1]} -> ${state}`;
      moves.set(move, (moves.get(move) ?? 0) + 1);
    }
    await farewell(run, seed);
  }
  if (ONLY) return;
  assert.ok(resumes > 8 * SEEDS, `only ${resumes} resumes: the network is too kind`);
  for (const way of ['down', 'up']) assert.ok(spared[way] > SEEDS, `${way}: only ${spared[way]} bytes not sent again`);
  for (const move of ['attached -> suspected', 'suspected -> attached', 'suspected -> detached']) {
    assert.ok(moves.get(move) > SEEDS / 60, `${move}: ${moves.get(move)}`);
  }
});

test('where the gateway drops the oldest, all others arrive once and in order', async () => {
  let dropped = 0;
  for (const seed of seeds(1001, SEEDS / 4)) {
    const run = await spliced(seed, { dropOldest: 5 });
    dropped += run.gateway.dropped.size;
  }
  assert.ok(ONLY || dropped > SEEDS, `only ${dropped} dropped`);
});

test('of states the newest arrive, what is missing was said to be skipped, and all others arrive once', async () => {
  let total = 0;
  for (const seed of seeds(2001, SEEDS / 4)) {
    const run = await spliced(seed, { newest: true });
    const skips = run.log.filter((line) => /^skip /.test(line)).map((line) => Number(line.slice(5)));
    const skipped = skips.reduce((sum, n) => sum + n, 0);
    assert.equal(
      run.heard.length + skipped,
      run.downSent.length,
      `${named(seed)}: messages and what is said to be skipped`,
    );
    total += skipped;
    await farewell(run, seed);
  }
  assert.ok(ONLY || total > SEEDS, `only ${total} skipped`);
});

test('every message arrives exactly once from a gateway that begins large messages anew', async () => {
  for (const seed of seeds(1001, SEEDS / 5)) await farewell(await spliced(seed, { resumesParts: false }), seed);
});

for (const edition of ['older', 'newer']) {
  test(`every message arrives exactly once from a gateway of an ${edition === 'older' ? 'older' : 'unknown, newer'} edition too`, async () => {
    for (const seed of seeds(1001, SEEDS / 5)) {
      const run = await spliced(seed, { answer: 5_000, edition });
      assert.ok(run.gateway.resumes > 0, named(seed));
      await farewell(run, seed);
    }
  });
}
