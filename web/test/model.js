// A model of a gateway, written from reseat.v1, and of a network that loses connections
// in every way. It checks what its client may do, and keeps what went through.

import { DLE, hello } from './helpers.js';

export const GRACE = 120_000;
const PART = 24; // bytes: half of the messages of the tests come in parts
export const HEARTBEAT = 5_000;
export const WINDOW = { unacked_messages: 8, unacked_bytes: 400 };

const size = (data) => (typeof data === 'string' ? Buffer.byteLength(data) : data.byteLength);

/**
 * A connection as the network has it: two queues in order, each message with its own
 * delay. `cut` ends it, and says who gets to know.
 */
class Wire {
  client; // the transport
  onMessage = () => {};
  onEnd = () => {};
  #net;
  #due = { up: 0, down: 0 }; // before then nothing more arrives
  #dead = false; // carries nothing any more
  #gatewayKnows = false;
  #clientKnows = false;

  constructor(net, client) {
    this.#net = net;
    this.client = client;
  }

  #carry(way, run) {
    const { clock } = this.#net;
    this.#due[way] = Math.max(this.#due[way], clock.mono + this.#net.delay());
    clock.setTimeout(() => this.#dead || run(), this.#due[way] - clock.mono);
  }

  up(data) {
    this.#carry('up', () => this.#gatewayKnows || this.onMessage(data));
  }

  down(data) {
    this.#carry('down', () => this.#clientKnows || this.client.receive(data));
  }

  /** The gateway sends a Close frame; the client answers it. */
  closeDown(code, reason) {
    this.#carry('down', () => {
      this.#endClient(code, reason, true);
      this.#carry('up', () => this.#endGateway('close'));
    });
  }

  /** The client closes. */
  closeUp() {
    if (this.#clientKnows) return;
    this.#clientKnows = true;
    this.#carry('up', () => this.#endGateway('close'));
  }

  /** @param {'reset' | 'half' | 'hole' | 'close' | 'stall'} how */
  cut(how) {
    const { clock, random } = this.#net;
    if (how === 'stall') {
      // one way or both, and then it goes on
      return this.stall(
        clock.mono + random() * 12_000,
        ['up', 'down'].filter(() => random() < 0.8),
      );
    }
    if (how === 'close') {
      // somebody in between closes
      this.#carry('up', () => this.#endGateway('close'));
      return this.#carry('down', () => this.#endClient([1000, 1001, 1012, 4409][Math.floor(random() * 4)], '', true));
    }
    clock.setTimeout(() => (this.#dead = true), random() * 50);
    if (how !== 'hole') clock.setTimeout(() => this.#endClient(1006, '', false), 50 + random() * 200);
    if (how === 'reset') clock.setTimeout(() => this.#endGateway('reset'), 50 + random() * 3_000);
  }

  /** @param {number} until then nothing arrives before @param {('up' | 'down')[]} ways */
  stall(until, ways) {
    for (const way of ways) this.#due[way] = Math.max(this.#due[way], until + this.#net.delay());
  }

  #endClient(code, reason, clean) {
    if (this.#clientKnows) return;
    this.#clientKnows = true;
    this.client.end(code, reason, clean);
  }

  #endGateway(why) {
    if (this.#gatewayKnows) return;
    this.#gatewayKnows = true;
    this.onEnd(why);
  }

  /** The gateway forgets it. */
  forget() {
    this.#gatewayKnows = true;
  }
}

/** The network between one client and one gateway. */
export class Net {
  calm = false;
  wires = new Set();
  #out = 0; // before then nothing at all comes through

  constructor(clock, random, gateway) {
    Object.assign(this, { clock, random, gateway });
  }

  delay() {
    return this.random() * (this.calm ? 40 : this.random() < 0.05 ? 2_000 : 40);
  }

  /** Everything is swallowed for so long, and then goes on. @param {number} ms */
  outage(ms) {
    this.#out = this.clock.mono + ms;
    for (const wire of this.wires) wire.stall(this.#out, ['up', 'down']);
  }

  /** When what is sent at the beginning of a connection arrives. */
  get first() {
    return Math.max(0, this.#out - this.clock.mono) + this.delay();
  }

  /** A transport's constructor for the client. */
  transport() {
    const net = this;
    let seqs = 0;
    return class extends EventTarget {
      seq = ++seqs;
      readyState = 0;
      protocol = '';
      #wire = new Wire(net, this);

      constructor(url, protocols) {
        super();
        this.protocols = protocols;
        const luck = net.calm ? 1 : net.random();
        const wait = luck < 0.1 ? 5_000 + net.random() * 20_000 : net.first; // some arrive when they are long given up
        if (luck < 0.25 && luck >= 0.1) net.clock.setTimeout(() => this.end(1006, '', false), net.delay());
        else if (luck >= 0.05) net.clock.setTimeout(() => this.#arrive(), wait);
      }

      #arrive() {
        net.wires.add(this.#wire);
        net.gateway.accept(this.#wire, this.protocols);
      }

      send(data) {
        if (this.readyState === 1) this.#wire.up(data);
      }

      close() {
        if (this.readyState >= 2) return;
        this.readyState = 2;
        this.#wire.closeUp();
      }

      opened() {
        if (this.readyState !== 0) return;
        this.readyState = 1;
        this.protocol = 'reseat.v1';
        this.dispatchEvent(new Event('open'));
      }

      receive(data) {
        if (data === 'the 101') return this.opened();
        if (this.readyState === 1) this.dispatchEvent(new MessageEvent('message', { data }));
      }

      end(code, reason, wasClean) {
        if (this.readyState === 3) return;
        this.readyState = 3;
        net.wires.delete(this.#wire);
        this.dispatchEvent(Object.assign(new Event('close'), { code, reason, wasClean }));
      }
    };
  }
}

/** The gateway with one session, and the game server behind it. */
export class Gateway {
  violations = [];
  upstream = []; // what the game server received
  bye = null;
  sent = 0; // numbered downward
  dropped = new Set();
  replaced = new Set();
  resumes = 0;
  spared = { down: 0, up: 0 }; // bytes of parts that were not sent again after a cut

  #down = []; // { n, data, key }, kept until acked
  #downAcked = 0;
  #downWritten = 0; // newest ever written to a connection, or skipped by lost
  #admitted = 0;
  #up = null; // the client's next message, as far as it has come in parts
  #sizes = new Map(); // of the client's messages that are not acked
  #upAcked = 0;
  #generation = 0;
  #confirmed = 0;
  #exists = false;
  #conn = null;

  /**
   * `edition`: 'older' is a gateway of before answer_ms; 'newer' one that says verbs and
   * members which this client does not know yet (protocol section 3). Without `resumesParts` it sends large messages in
   * parts, and begins anew after each cut.
   */
  constructor(clock, random, { dropOldest = Infinity, answer = 0, edition = 'present', resumesParts = true } = {}) {
    Object.assign(this, { clock, random, dropOldest, answer, edition, resumesParts });
  }

  get attached() {
    return this.#conn !== null;
  }

  get live() {
    return this.#conn;
  }

  violation(text) {
    this.violations.push(`${Math.round(this.clock.mono)} ms: ${text}`);
  }

  // ---- handshake

  accept(wire, protocols) {
    const find = (prefix) => protocols.find((name) => name.startsWith(prefix))?.slice(prefix.length);
    const [token, received] = [find('reseat.token.'), find('reseat.received.')];
    wire.down('the 101');
    const knows = (offer) => this.edition !== 'older' && protocols.includes(offer);
    const held = this.edition === 'older' ? undefined : find('reseat.partial.');
    const takes = {
      parts: knows('reseat.parts'),
      skip: knows('reseat.skip'),
      held: this.resumesParts ? held : undefined,
    };
    if (!protocols.includes('reseat.v1')) this.violation('a connection without the offer');
    if (token === undefined) {
      if (this.#exists) this.violation('a second session');
      this.#exists = true;
      this.protocol = protocols.find((name) => !name.startsWith('reseat.')) ?? '';
      return this.#attach(wire, 0, false, takes);
    }
    return this.#resume(wire, Number(token.split('.')[1]), Number(received), takes);
  }

  #resume(wire, generation, n, takes) {
    const refuse = (code, more = {}) => {
      this.#say(wire, 'close', { code, reason: '', retry: false, ...more });
      wire.closeDown(code, '');
    };
    if (this.bye) return refuse(4404);
    if (generation < this.#confirmed) return refuse(4401);
    if (n > this.#downWritten) return refuse(4400);
    if (n < this.#downAcked) return refuse(4408);
    if (this.random() < 0.03) return refuse(4429, { retry: true, retry_after_ms: 500 });
    this.#confirmed = Math.max(this.#confirmed, generation);
    return this.#attach(wire, n, true, takes);
  }

  #attach(wire, n, resumed, takes) {
    const old = this.#conn;
    if (old) {
      this.#say(old.wire, 'close', { code: 4409, reason: 'superseded', retry: false });
      old.wire.closeDown(4409, 'superseded');
      old.wire.forget();
    }
    if (resumed) this.resumes++;
    this.#ackDown(n);
    const lost = Math.max(0, (this.#down[0]?.n ?? this.sent + 1) - 1 - n);
    const skipped = this.#down.filter((entry) => entry.n > n && this.replaced.has(entry.n)).length;
    const first = this.#down.find((entry) => entry.n > n);
    const goesOn = lost === 0 && first && !this.replaced.has(first.n) && takes.held < this.#bytes(first.data).length;
    const down = goesOn && this.random() < 0.9 ? Number(takes.held) : 0;
    if (this.#up && this.random() < 0.1) this.#up = null; // the memory is exhausted
    this.spared.down += down;
    this.spared.up += this.#up?.held.length ?? 0;
    const conn = {
      wire,
      ...takes,
      down,
      from: n + lost,
      came: n + lost,
      firstAck: true,
      generation: ++this.#generation,
      acked: -1,
      heard: this.clock.mono,
      owed: 0,
    };
    this.#conn = conn;
    this.#downWritten = Math.max(this.#downWritten, n + lost);
    wire.onMessage = (data) => conn === this.#conn && this.#onMessage(conn, data);
    wire.onEnd = () => this.#detach(conn);
    this.#say(
      wire,
      'hello',
      hello({
        session: 'model',
        token: `t.${conn.generation}.s`,
        resumed,
        protocol: this.protocol,
        received: this.#admitted,
        lost,
        replay: this.sent - n - lost - skipped,
        skipped: skipped || undefined,
        part_bytes: takes.parts ? PART : undefined,
        partial: takes.held === undefined ? undefined : { down, up: this.#up?.held.length ?? 0 },
        grace_ms: GRACE,
        heartbeat_ms: HEARTBEAT,
        answer_ms: this.edition === 'older' ? undefined : this.answer,
        limits: { message_bytes: 1 << 20, ...WINDOW, ...this.#future },
        ...this.#future,
      }),
    );
    this.#flow();
    this.#beat(conn);
    if (resumed) this.clock.setTimeout(() => conn === this.#conn && this.#ackUp(true), this.random() * 1_000);
  }

  #detach(conn) {
    if (conn === this.#conn) this.#conn = null;
  }

  #beat(conn) {
    this.clock.setTimeout(() => {
      if (conn !== this.#conn) return;
      if (this.clock.mono - conn.heard >= 2 * HEARTBEAT) {
        conn.wire.forget();
        return this.#detach(conn);
      }
      this.#say(conn.wire, 'ping', `p${Math.round(this.clock.mono)}`);
      this.#beat(conn);
    }, HEARTBEAT);
  }

  /** Members of a later protocol. */
  get #future() {
    return this.edition === 'newer' ? { future: { received: 7, token: 'x' }, futures: [null] } : {};
  }

  #say(wire, verb, argument) {
    if (this.edition === 'newer') {
      if (verb !== 'hello') wire.down(`${DLE}future ${this.random()}`);
      if (typeof argument === 'object') argument = { ...argument, ...this.#future };
    }
    wire.down(`${DLE}${verb} ${typeof argument === 'object' ? JSON.stringify(argument) : argument}`);
  }

  // ---- downward

  /** The game server sends. */
  send(data, key) {
    const older = key && !this.#conn && this.#down.find((entry) => entry.key === key && !this.replaced.has(entry.n));
    if (older) this.replaced.add(older.n);
    this.#down.push({ n: ++this.sent, data, key });
    while (!this.#conn && this.#down.length > this.dropOldest) this.dropped.add(this.#down.shift().n);
    this.#flow();
  }

  #flow() {
    const conn = this.#conn;
    if (!conn) return;
    let skips = 0;
    for (const { n, data } of this.#down) {
      if (n <= conn.came) continue;
      if (n !== conn.came + 1) this.violation('the model lost count');
      conn.came = n;
      this.#downWritten = Math.max(this.#downWritten, n);
      if (this.replaced.has(n)) {
        skips++;
        continue;
      }
      if (skips > 0) this.#say(conn.wire, 'skip', skips);
      skips = 0;
      this.#deliver(conn, data);
    }
  }

  /** A message as it stands on the wire. */
  #bytes(data) {
    if (typeof data !== 'string') return new Uint8Array(data);
    return new TextEncoder().encode(data.startsWith(DLE) ? DLE + data : data);
  }

  /** Whole, or, where the client takes parts, in some, with a control message in between at times. */
  #deliver(conn, data) {
    const bytes = this.#bytes(data);
    const whole = typeof data === 'string' && data.startsWith(DLE) ? DLE + data : data;
    if (!conn.parts || bytes.length <= PART) return conn.wire.down(whole);
    const from = conn.down;
    conn.down = 0;
    this.#say(conn.wire, 'parts', { bytes: bytes.length, text: typeof data === 'string', from: from || undefined });
    for (let at = from; at < bytes.length; at += PART) {
      if (this.random() < 0.2) this.#say(conn.wire, 'ping', 'between');
      conn.wire.down(bytes.slice(at, at + PART).buffer);
    }
    return undefined;
  }

  #ackDown(n) {
    this.#downAcked = Math.max(this.#downAcked, n);
    while (this.#down[0]?.n <= this.#downAcked) this.#down.shift();
  }

  // ---- upward

  #onMessage(conn, data) {
    conn.heard = this.clock.mono;
    this.#confirmed = Math.max(this.#confirmed, conn.generation);
    const control = typeof data === 'string' && data.startsWith(DLE) && !data.startsWith(DLE, 1);
    if (conn.firstAck && data !== `${DLE}ack ${conn.from}`) this.violation(`first came ${data}, not ack ${conn.from}`);
    conn.firstAck = false;
    if (control) return this.#onControl(conn, data.slice(1));
    if (conn.bye) return this.violation('data after bye');
    if (conn.up) data = this.#onPart(conn, data);
    else if (conn.held !== undefined && size(data) > PART) this.violation('a large message as a whole');
    if (data === undefined) return undefined;
    const own = typeof data === 'string' && data.startsWith(DLE) ? data.slice(1) : data;
    this.#admitted++;
    this.#sizes.set(this.#admitted, size(own));
    const bytes = [...this.#sizes.values()].reduce((sum, b) => sum + b, 0);
    if (this.#sizes.size > WINDOW.unacked_messages || (this.#sizes.size > 1 && bytes > WINDOW.unacked_bytes))
      this.violation('unacked limit passed');
    this.upstream.push(own);
    if (++conn.owed >= 32) this.#ackUp();
    else
      this.clock.setTimeout(
        () => conn === this.#conn && this.#ackUp(),
        this.random() * (this.random() < 0.1 ? 4_000 : 400),
      );
    return undefined;
  }

  /** The client sends a message in parts. */
  #onParts(conn, { bytes, text, from = 0 }) {
    if (conn.held === undefined || conn.up) this.violation('parts');
    if (from !== (this.#up?.held.length ?? 0)) this.violation(`parts from ${from}`);
    if (this.#up && (this.#up.bytes !== bytes || this.#up.text !== text)) this.violation('another message');
    this.#up ??= { bytes, text, held: Buffer.alloc(0) };
    conn.up = this.#up;
  }

  /** Returns the whole message after its last part. */
  #onPart(conn, data) {
    const { up } = conn;
    if (typeof data === 'string' || data.byteLength < 1 || data.byteLength > PART) this.violation('no part');
    up.held = Buffer.concat([up.held, Buffer.from(data)]);
    if (up.held.length > up.bytes) this.violation('too many parts');
    if (up.held.length < up.bytes) {
      if (this.random() < 0.5) this.#say(conn.wire, 'part', up.held.length);
      return undefined;
    }
    conn.up = this.#up = null;
    return up.text ? up.held.toString() : new Uint8Array(up.held).buffer;
  }

  #ackUp(again = false) {
    if (this.#upAcked === this.#admitted && !again) return;
    this.#upAcked = this.#admitted;
    this.#sizes.clear();
    this.#conn.owed = 0;
    this.#say(this.#conn.wire, 'ack', this.#upAcked);
  }

  #onControl(conn, text) {
    const [, verb, argument] = /^([a-z]{1,16})(?: ([^]*))?$/.exec(text) ?? [];
    if (verb === 'ack') {
      const n = Number(argument);
      if (n > conn.came) this.violation(`ack ${n} beyond ${conn.came}`);
      if (n < conn.acked) this.violation(`ack ${n} after ${conn.acked}`);
      conn.acked = n;
      this.#ackDown(n);
    } else if (verb === 'parts') {
      this.#onParts(conn, JSON.parse(argument));
    } else if (verb === 'part') {
      if (conn.held === undefined) this.violation('part');
    } else if (verb === 'ping') {
      this.#say(conn.wire, 'pong', argument);
    } else if (verb === 'bye') {
      this.bye = JSON.parse(argument);
      conn.bye = true;
      conn.wire.closeDown(this.bye.code, this.bye.reason);
      this.#conn = null;
    } else if (verb !== 'pong') {
      this.violation(`verb ${verb}`);
    }
  }

  // ---- what operators do

  move(within) {
    if (this.#conn) this.#say(this.#conn.wire, 'move', { within_ms: within, reason: 'model' });
  }

  renew() {
    if (this.#conn) this.#say(this.#conn.wire, 'token', { token: `u.${this.#conn.generation}.s` });
  }

  drain(after) {
    const conn = this.#conn;
    if (!conn) return;
    this.#say(conn.wire, 'close', { code: 4503, reason: 'draining', retry: true, retry_after_ms: after });
    conn.wire.closeDown(4503, 'draining');
    this.#detach(conn);
  }
}
