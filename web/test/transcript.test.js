import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { DLE, hello, seeded, settle, world } from './helpers.js';
import { milliseconds, parse } from './transcript.js';

// Plays every golden transcript with the client against a scripted gateway.

const directory = new URL('../../testdata/transcripts/', import.meta.url);
const raw = (data) => (typeof data === 'string' ? data : `binary ${Buffer.from(data).toString('hex')}`);
const unescaped = (data) => (typeof data === 'string' && data.startsWith(DLE) ? data.slice(1) : data);
const control = (data) => typeof data === 'string' && data.startsWith(DLE) && !data.startsWith(DLE, 1);
const members = (given, got, message) =>
  assert.deepEqual(Object.fromEntries(Object.keys(given).map((key) => [key, got?.[key]])), given, message);

/** One story, with the client in it. */
class Story {
  settings = { grace: '30s', heartbeat: '15s' };
  w = null; // the world, from the first handshake on
  connections = []; // { transport, stated, came, cursor, acks, half }
  told = []; // events that no step has named yet
  given = 0; // messages that the application gave to send()
  taken = 0; // messages that the application got
  tokens = 0;
  token = '';
  at = '';

  get current() {
    return this.connections.at(-1);
  }

  async play(steps) {
    for (const step of steps) {
      this.at = `line ${step.line}: ${step.text}`;
      await this.take(step);
      await settle();
    }
    this.at = 'the end';
    for (const { transport } of this.connections)
      assert.deepEqual(this.data(transport).map(raw), [], 'data that is not written');
    assert.deepEqual(
      this.told.filter(({ type }) => ['message', 'error', 'close'].includes(type)),
      [],
      'events that are not written',
    );
  }

  take(step) {
    const by = {
      '@': 'setting',
      '---': 'cut',
      '+++': 'wait',
      'C>': 'client',
      'G>': 'gateway',
      'A>': 'application',
      'A<': 'event',
    }[step.kind];
    return by ? this[by](step) : undefined; // the upstream is the gateway runner's
  }

  setting({ value }) {
    const [name, setting] = value.split('=');
    this.settings[name] = setting;
  }

  // ---- network and clock

  cut({ value }) {
    this.current.half = true;
    if (value === 'drop') this.current.transport.drop();
    else assert.equal(value, 'half-open', this.at);
  }

  /** Handshakes that nobody waits for fail: the network is down. */
  get pending() {
    return this.w.sockets.filter((socket) => socket.readyState === 0 && socket.closed === null);
  }

  async wait({ value }) {
    const heartbeat = milliseconds(this.settings.heartbeat);
    const end = milliseconds(value);
    for (let t = 0; t < end; t += 50) {
      if (t > 0 && t % heartbeat === 0) await this.beat();
      for (const socket of this.pending) socket.drop();
      await this.w.clock.advance(Math.min(50, end - t));
    }
  }

  async beat() {
    if (this.current.half) return;
    this.current.transport.control('ping', 'beat');
    await settle();
    assert.ok(this.current.transport.sent.includes(`${DLE}pong beat`), `${this.at}: a ping is not answered`);
  }

  // ---- client

  async client(step) {
    if (step.what === 'GET') return this.handshake(step);
    const conn = this.connections[(step.on ?? this.connections.length) - 1];
    if (step.what === 'data') return this.clientData(conn, step.data);
    if (step.what === 'close') return undefined;
    if (step.verb === 'ack') return this.clientAck(conn, Number(step.argument));
    const next = this.controls(conn.transport).find((data) => !/^.(ack|ping|pong)\b/.test(data));
    const [, verb, argument] = /^.([a-z]+)(?: (.*))?$/.exec(next ?? '') ?? [];
    assert.equal(verb, step.verb, this.at);
    members(step.argument, JSON.parse(argument), this.at);
    return this.used(conn.transport, next);
  }

  async handshake({ path, offer }) {
    const own = offer.slice(0, offer.indexOf('reseat.v1'));
    if (!this.w) {
      this.w = world({ url: `ws://game.test${path}`, protocols: own, options: { refusals: false }, random: seeded(1) });
      this.listen();
    }
    for (let t = 0; t < 5_000 && this.pending.length === 0; t += 50) await this.w.clock.advance(50);
    const [transport, ...others] = this.pending;
    assert.ok(transport, `${this.at}: no handshake`);
    assert.equal(others.length, 0, `${this.at}: two handshakes at once`);
    assert.equal(transport.url, `ws://game.test${path}`);
    const stated = offer.find((entry) => entry.startsWith('received='))?.slice('received='.length);
    const resume = [`reseat.token.${this.token}`, `reseat.received.${stated}`];
    const expected = offer.flatMap((entry) => (entry.startsWith('received=') ? resume : [entry]));
    const optional = /^reseat\.(parts|skip|partial|settled)/; // part of a story that names them
    assert.deepEqual(
      transport.protocols.filter((entry) => expected.includes(entry) || !optional.test(entry)),
      expected,
      this.at,
    );
    transport.open();
    this.connections.push({ transport, stated: Number(stated ?? 0), came: 0, cursor: 0, half: false });
  }

  clientData(conn, data) {
    if (++conn.cursor > this.given) {
      this.given++;
      this.w.socket.send(unescaped(data));
    }
    const next = this.data(conn.transport)[0];
    assert.equal(next === undefined ? 'nothing' : raw(next), raw(data), this.at);
    this.used(conn.transport, next);
  }

  async clientAck(conn, n) {
    const newest = () =>
      Number(
        this.controls(conn.transport)
          .filter((data) => data.startsWith(`${DLE}ack `))
          .at(-1)
          ?.slice(5) ?? conn.acked,
      );
    for (let t = 0; t < 1_000 && newest() < n; t += 50) await this.w.clock.advance(50);
    assert.equal(newest(), n, this.at);
  }

  data(transport) {
    return transport.sent.filter((data) => !control(data));
  }

  controls(transport) {
    return transport.sent.filter(control);
  }

  used(transport, data) {
    transport.sent.splice(transport.sent.indexOf(data), 1);
  }

  // ---- gateway

  gateway(step) {
    const conn = this.connections[(step.on ?? this.connections.length) - 1];
    if (step.what === 'data') return this.gatewayData(conn, step.data);
    if (step.what === 'close') return conn.transport.end(step.code, step.reason ?? '');
    if (step.verb === 'hello') return this.hello(conn, step.argument);
    if (step.verb === 'skip') this.taken = Math.max(this.taken, (conn.came += Number(step.argument)));
    return conn.transport.control(step.verb, step.argument);
  }

  hello(conn, given) {
    this.token = `token.${++this.tokens}.x`;
    const times = { grace_ms: milliseconds(this.settings.grace), heartbeat_ms: milliseconds(this.settings.heartbeat) };
    const whole = hello({ token: this.token, ...times, ...given });
    conn.came = conn.stated + whole.lost;
    conn.cursor = whole.received;
    conn.acked = conn.came;
    assert.deepEqual(conn.transport.sent, [], `${this.at}: sent before hello`);
    conn.transport.control('hello', whole);
    assert.equal(conn.transport.sent[0], `${DLE}ack ${conn.came}`, `${this.at}: the first ack`);
  }

  gatewayData(conn, data) {
    const fresh = conn === this.current && ++conn.came > this.taken;
    conn.transport.receive(typeof data === 'string' ? data : data.slice(0));
    const told = this.told.filter(({ type }) => type === 'message');
    this.told = this.told.filter(({ type }) => type !== 'message');
    assert.deepEqual(
      told.map((event) => raw(event.data)),
      fresh ? [raw(unescaped(data))] : [],
      this.at,
    );
    if (fresh) this.taken = conn.came;
  }

  // ---- application

  listen() {
    this.w.socket.binaryType = 'arraybuffer';
    for (const type of ['open', 'message', 'detach', 'resume', 'replayed', 'skip', 'error', 'close']) {
      this.w.socket.addEventListener(type, (event) => this.told.push(event));
    }
  }

  application(step) {
    if (step.what === 'data') {
      this.given++;
      this.w.socket.send(step.data);
    } else if (step.what === 'close') {
      this.w.socket.close(step.code, step.reason);
    } else {
      this.w.page.fire(step.event);
    }
  }

  event(step) {
    const type = step.event ?? step.what;
    const index = this.told.findIndex((event) => event.type === type);
    assert.notEqual(index, -1, `${this.at}: told only ${this.told.map((event) => event.type)}`);
    const passed = this.told.splice(0, index + 1);
    assert.deepEqual(
      passed.slice(0, -1).filter((event) => ['error', 'close'].includes(event.type)),
      [],
      this.at,
    );
    members(step.members ?? {}, passed.at(-1), this.at);
  }
}

const names = readdirSync(directory).filter((name) => name.endsWith('.txt'));

test('there are transcripts', () => assert.ok(names.length >= 6));

for (const name of names) {
  test(`transcript ${name}`, () => new Story().play(parse(readFileSync(new URL(name, directory), 'utf8'))));
}

test('a transcript that is wrong in any line fails', async () => {
  const text = readFileSync(new URL('drop-and-resume.txt', directory), 'utf8');
  const wrong = [
    ['received=1', 'received=0'],
    ['C> "go east"', 'C> "go west"'],
    ['C> ^ack 3', 'C> ^ack 2'],
    ['A< replayed', 'A< error'],
    ['"attempt":1', '"attempt":2'],
    ['"replay":1,"lost":0}\nC>', '"replay":2,"lost":0}\nC>'],
    ['C> "go east"                U<', 'U<'],
    ['chat.v2, reseat.v1, received', 'reseat.v1, received'],
  ];
  for (const [from, to] of wrong) {
    assert.ok(text.includes(from), from);
    await assert.rejects(async () => new Story().play(parse(text.replace(from, to))), `${from} -> ${to}`);
  }
});
