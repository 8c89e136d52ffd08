import { Alarm } from './alarm.js';
import { Connection, listen } from './connection.js';
import { bytesOf } from './data.js';
import * as Kind from './kind.js';
import { Liveness } from './liveness.js';
import { Outbox } from './outbox.js';
import { Pacer } from './pacer.js';
import * as ReadyState from './readystate.js';
import * as State from './state.js';
import * as MS from './times.js';
import { moduleOrigin, originOf } from './url.js';
import { ACK_AFTER, DLE, REFUSALS, VERSION, escaped, isToken, readControl, sizeOf } from './wire.js';

/** @typedef {import('./types.js').Plan} Plan */
/** @typedef {import('./types.js').Host} Host */
/** @typedef {import('./types.js').Ending} Ending */
/** @typedef {import('./types.js').Verdict} Verdict */
/** @typedef {import('./types.js').Farewell} Farewell */
/** @typedef {import('./records.js').SavedSession} SavedSession */
/** @typedef {import('./wire.js').Terms} Terms */

/** @type {Ending} */
const NO_WAY_BACK = { code: 1006, reason: '', wasClean: false, error: true };

/** So many connections in a row that came to nothing, over MS.futile, are no accident. */
const FUTILE = 10;

/** What is agreed with the gateway before its first hello. @param {string} token @returns {Terms} */
const noTerms = (token) => ({
  session: '',
  token,
  grace: 0,
  heartbeat: 0,
  answer: 0,
  rules: false,
  window: { messages: Infinity, bytes: Infinity },
});

/**
 * A Session is what outlives a connection: counts both ways, acks, the way back, the end.
 * It has at most two connections: `live`, which has had its hello, and `attempt`, which has
 * not. What comes from any other one is not listened to.
 */
export class Session {
  #plan;
  #host;
  /** @type {string} */
  #state = State.CONNECTING;

  // Connections. `hellos` counts them; `abandoned` is how many there had been when an
  // attempt last ended, by us or by itself, without hello or refusal: it may have reached
  // the gateway, or may reach it yet.
  /** @type {Connection | null} */
  #live = null;
  /** @type {Connection | null} */
  #attempt = null;
  #hellos = 0;
  #abandoned = -1;

  /** The newest hello, with what `token` and `grace` have changed in it since. @type {Terms} */
  #said;
  #protocol = '';

  // Counts: `received` downward, the outbox upward.
  #received = 0;
  #out = new Outbox();
  #refused = 0; // bytes given to send() after the end
  #turn = 0; // bufferedAmount does not fall below this before the application's turn is over, as native

  // Silence.
  #liveness = new Liveness();
  #heard = 0; // the last sign of life, by the clock that is never set
  #heardWall = 0; // the same, by the wall
  #spoke = false; // the suspected connection did, too late for the attempt to be dropped
  #falseAlarms = 0; // in a row
  #pings = 0; // ever sent
  #probed = 0; // the ping whose answer the probe waits for

  // The way back.
  #pacer;
  #dropped = 0; // when the live connection was given up
  #begun = -Infinity; // when the newest attempt began
  #slowest = 0; // what a connection has taken to its 101, at most
  #tries = 0;
  #owing = false; // an attempt must be made even when the time is over
  #over = false; // the time is over: the attempt under way is the last
  #told = false; // the gateway said when to come back
  #waited = false; // the pause of an offline browser has been kept
  #standIns = 0; // heartbeats that stood in for the game's and were not answered yet
  #moveBy = 0;
  #futile = 0; // connections in a row that ended at once and came to nothing, though something was to come
  #futileSince = 0;

  // Page reloads.
  #born;
  #parked = false; // the page is gone, or in the back/forward cache: its record is in the store
  #reloaded = false;

  /** @type {Farewell | null} */
  #farewell = null;

  #timers;
  #patience; // an attempt has had its time
  #pace; // the next attempt
  #giveUp; // the way back is closed
  #silence; // nothing was heard for long enough to do something about it
  #probe; // no answer to a ping
  #ackBy; // an ack is due
  #closeBy; // no Close frame came
  #moveAt; // the moment of a move
  #beatAt; // a stand-in for the game's own heartbeat

  /** @param {Plan} plan @param {Host} host */
  constructor(plan, host) {
    /** @param {(this: Session, late: boolean) => void} ring @param {number} [retries] */
    const alarm = (ring, retries = 0) => new Alarm(plan.runtime, (late) => this.#onRing(late, ring), retries);
    this.#plan = plan;
    this.#host = host;
    this.#said = noTerms(plan.token);
    this.#born = plan.runtime.wall();
    this.#pacer = new Pacer(plan.runtime.random);
    this.#timers = [
      (this.#patience = alarm(this.#onPatience, 2)),
      (this.#pace = alarm(this.#tryAgain)),
      (this.#giveUp = alarm(this.#onGiveUp)),
      (this.#silence = alarm(this.#onSilence, 2)),
      (this.#probe = alarm(this.#onProbe, 2)),
      (this.#ackBy = alarm(this.#ack)),
      (this.#closeBy = alarm(this.#onCloseBy)),
      (this.#moveAt = alarm(this.#move)),
      (this.#beatAt = alarm(this.#beat)),
    ];
    const saved = plan.records?.take(this.#born);
    if (saved && this.#restore(saved)) this.#comeBack(0);
    else this.#attempt = this.#dial(plan.plain ? Kind.PLAIN : Kind.FIRST);
    this.#watchPage('addEventListener');
  }

  /** @returns {0 | 1 | 2} CLOSED comes with the event */
  get readyState() {
    switch (this.#state) {
      case State.CONNECTING:
      case State.RELOADED:
        return ReadyState.CONNECTING;
      case State.ENDED:
        return ReadyState.CLOSING; // until its socket has said so
      case State.PLAIN:
        return this.#farewell || this.#live?.transport.readyState >= ReadyState.CLOSING
          ? ReadyState.CLOSING
          : ReadyState.OPEN;
      default:
        return this.#farewell || this.#live?.verdict?.retry === false ? ReadyState.CLOSING : ReadyState.OPEN;
    }
  }

  get id() {
    return this.#said.session || null;
  }

  get detached() {
    return this.#state === State.DETACHED || this.#state === State.SUSPECTED;
  }

  /** Whether it was begun before the page was reloaded. */
  get reloaded() {
    return this.#reloaded;
  }

  /** Whether it looks for a connection, and has none that works. */
  get #lost() {
    return this.#state === State.DETACHED || this.#state === State.RELOADED;
  }

  get protocol() {
    return this.#protocol;
  }

  get extensions() {
    return this.#state === State.PLAIN ? String(this.#live?.transport.extensions ?? '') : '';
  }

  get bufferedAmount() {
    const waiting = this.#out.waiting + this.#refused;
    return this.#state === State.PLAIN
      ? waiting + (this.#live?.transport.bufferedAmount || 0)
      : Math.max(waiting, this.#turn);
  }

  /**
   * Takes a message; a Blob comes as the promise of its bytes and keeps its place.
   * @param {string | ArrayBuffer | Promise<ArrayBuffer>} data
   * @param {number} bytes
   */
  send(data, bytes) {
    if (!this.#turn) queueMicrotask(() => (this.#turn = 0));
    this.#turn = this.bufferedAmount + bytes;
    if (this.#standIns > 0 && data === this.#plan.keepalive?.answer) {
      this.#standIns--;
      return;
    }
    if (this.readyState !== ReadyState.OPEN) {
      this.#refused += bytes;
      if (data instanceof Promise) data.catch(() => {});
    } else if (data instanceof Promise) {
      const entry = this.#out.add(null, bytes);
      data.then(
        (read) => {
          entry.data = read;
          this.#pump();
        },
        () => this.#unreadable(),
      );
    } else {
      this.#out.add(data, bytes);
      this.#pump();
    }
    if (this.#parked) this.#leave(); // with this message, too
  }

  /** @param {number | undefined} code @param {string} reason */
  close(code, reason) {
    if (this.readyState === ReadyState.CLOSING) return;
    if (this.readyState === ReadyState.CONNECTING) return this.#finish(NO_WAY_BACK);
    this.#farewell = { code: code ?? (reason ? 1000 : 1005), reason };
    if (this.#parked && !this.#takeBack()) return this.#finish(NO_WAY_BACK);
    if (this.#state === State.DETACHED) {
      const left = this.#dropped + this.#said.grace - this.#plan.runtime.now();
      if (left > 0) this.#giveUp.set(left);
    }
    this.#pump();
  }

  // ---- connections

  /** @param {string} state @param {string} why */
  #enter(state, why) {
    this.#state = state;
    this.#plan.runtime.trace(state, why);
  }

  /** @param {string} kind */
  #dial(kind) {
    const { Transport, url, protocols, runtime } = this.#plan;
    const transport = new Transport(url, kind === Kind.PLAIN ? protocols : this.#offer());
    try {
      transport.binaryType = 'arraybuffer'; // so that every message has its size and its turn at once
    } catch {
      // A transport without it delivers what it likes.
    }
    const conn = new Connection(transport, kind, this.#said.token, this.#received, this.#out.acked);
    conn.since = runtime.now();
    const current = () => conn === this.#live || conn === this.#attempt;
    listen(transport, 'open', () => current() && this.#onOpen(conn));
    listen(transport, 'message', (event) => current() && this.#onMessage(conn, event.data));
    listen(transport, 'error', () => (conn.errored = true));
    listen(transport, 'close', (event) => current() && this.#onClose(conn, event));
    return conn;
  }

  /** protocol section 2: the application's subprotocols first. */
  #offer() {
    const own = this.#plan.protocols.filter((name) => !name.startsWith('reseat.'));
    const { token } = this.#said;
    if (token) return [...own, VERSION, `reseat.token.${token}`, `reseat.received.${this.#received}`];
    return this.#plan.refusals ? [...own, VERSION, REFUSALS] : [...own, VERSION];
  }

  /** @param {Connection} conn */
  #onOpen(conn) {
    if (conn.kind === Kind.PLAIN) return this.#becomePlain(conn, 'no offer');
    const chosen = conn.transport.protocol;
    if (chosen && chosen !== VERSION) {
      // A server that does not know reseat.v1 took one of the application's subprotocols.
      if (conn.kind === Kind.FIRST && !this.#said.token && this.#plan.fallback)
        return this.#becomePlain(conn, 'other subprotocol');
      return this.#broken(conn);
    }
    conn.opened = true;
    this.#slowest = Math.max(this.#slowest, this.#plan.runtime.now() - conn.since);
    this.#patience.set(this.#said.token ? MS.resumeHello : MS.firstHello);
  }

  /** @param {Connection} conn @param {any} data */
  #onMessage(conn, data) {
    if (this.#parked) return; // the record is written: it comes again
    if (this.#state === State.PLAIN) return this.#host.message(data);
    const late = this.#late();
    this.#liveness.paused = late > MS.paused;
    if (conn === this.#live && this.#probe.armed) this.#probe.set(this.#probeLimit()); // the answer is behind it, if any comes
    if (conn.verdict) return;
    if (typeof data !== 'string' || !data.startsWith(DLE)) this.#onData(conn, data);
    else if (data.startsWith(DLE, 1)) this.#onData(conn, data.slice(1));
    else this.#onControl(conn, data.slice(1));
    if (conn === this.#live) this.#rearm();
    if (late > MS.slept) this.#wake();
  }

  /** @param {Connection} conn @param {any} data */
  #onData(conn, data) {
    if (!conn.hello) return this.#noHello(conn);
    this.#onHeard();
    const number = ++conn.last;
    this.#liveness.received(this.#heard, number > this.#received);
    conn.owed.messages++;
    conn.owed.bytes += sizeOf(data);
    if (number > this.#received) {
      this.#received = number;
      conn.useful = true;
      if (this.readyState === ReadyState.OPEN) this.#host.message(data);
    }
    if (conn.replay > 0 && --conn.replay === 0) this.#host.notice('replayed', {});
    if (conn !== this.#live) return; // the application or its messages ended it
    if (conn.owed.messages >= ACK_AFTER.messages || conn.owed.bytes >= ACK_AFTER.bytes) this.#ack();
    else if (!this.#ackBy.armed) this.#ackBy.set(MS.ack);
  }

  /** @param {Connection} conn @param {string} text */
  #onControl(conn, text) {
    let message;
    try {
      message = readControl(text);
    } catch {
      return conn.kind === Kind.FIRST && !conn.hello && !text.startsWith('hello')
        ? this.#noHello(conn)
        : this.#broken(conn);
    }
    const { verb, argument } = message;
    if (!conn.hello && verb !== 'hello' && verb !== 'close') {
      if (conn.kind === Kind.FIRST || argument !== undefined) this.#noHello(conn);
      return;
    }
    // protocol section 5: a 4409 is no sign of life; it may be what a resume of ours brought about.
    if (conn === this.#live && (verb !== 'close' || argument.code !== 4409)) this.#onHeard();
    switch (verb) {
      case 'hello':
        return this.#onHello(conn, argument);
      case 'ack':
        return this.#onAck(conn, argument);
      case 'pong':
        return this.#onPong(conn, Number(argument));
      case 'token':
        this.#said.token = argument;
        return;
      case 'grace':
        this.#said.grace = argument;
        return;
      case 'ping':
        this.#ack();
        return conn.say('pong', argument);
      case 'move':
        return this.#onMove(argument);
      case 'end':
        return this.#onVerdict(conn, { ...argument, retry: false, final: true });
      case 'close':
        return this.#onCloseVerb(conn, argument);
      // Others: reseat.v1 may grow.
    }
  }

  /** @param {Connection} conn @param {import('./wire.js').Hello} hello */
  #onHello(conn, hello) {
    const foreign = this.#said.session !== '' && hello.session !== this.#said.session;
    if (conn.hello || foreign || !this.#out.admits(hello.received)) return this.#broken(conn);
    // protocol section 8: its numbers would not be those that the older connection has used since.
    if (hello.moved && (this.#received > conn.stated || this.#out.acked > conn.settled)) return this.#broken(conn);
    const before = this.#state;
    const ms = this.#sinceHeard();
    this.#retire(this.#live); // protocol section 8: nothing more is taken from it
    this.#live = conn;
    this.#attempt = null;
    for (const alarm of [this.#patience, this.#pace, this.#giveUp, this.#moveAt]) alarm.clear();
    this.#owing = this.#over = this.#told = this.#waited = false;
    conn.hello = ++this.#hellos;
    conn.since = this.#plan.runtime.now();
    conn.replay = hello.replay;
    conn.awaited = hello.replay > 0 || this.#out.unacked;
    conn.last = conn.stated + hello.lost;
    this.#received = Math.max(this.#received, conn.last);
    this.#said = hello;
    this.#enter(State.ATTACHED, 'hello');
    this.#signOfLife();
    this.#liveness.begin(this.#heard);
    this.#ack();
    this.#out.rewind(hello.received);
    this.#pump();
    this.#rearm();
    if (before !== State.CONNECTING && before !== State.RELOADED) return this.#resumed(hello.replay, hello.lost, ms);
    this.#reloaded = before === State.RELOADED;
    this.#welcome(hello.protocol);
    if (this.#reloaded) this.#resumed(hello.replay, hello.lost, ms, { reloaded: true });
    return undefined;
  }

  /** The first hello has come. @param {string} protocol */
  #welcome(protocol) {
    this.#protocol = protocol;
    this.#plan.runtime.gateways.add(originOf(this.#plan.url));
    if (this.#plan.keepalive) this.#beatAt.set(this.#plan.keepalive.every);
    this.#host.opened();
  }

  /** @param {Connection} conn @param {any} event */
  #onClose(conn, event) {
    const { code = 1006, reason = '', wasClean = false } = event ?? {};
    if (this.#parked) return undefined;
    if (this.#state === State.PLAIN || conn.kind === Kind.PLAIN) {
      return this.#finish({ code, reason, wasClean, error: conn.errored });
    }
    if (conn === this.#attempt) {
      this.#abandon(conn);
      return this.#attemptFailed(conn);
    }
    if (wasClean) this.#signOfLife(); // a Close frame came
    if (conn.verdict?.retry === false) return this.#finishBy(conn.verdict);
    if (conn.bye && code === conn.bye) return this.#finish({ ...NO_WAY_BACK }); // told as the application's own
    return this.#lose('drop');
  }

  /** What the gateway must not send: the connection is no good. @param {Connection} conn */
  #broken(conn) {
    if (conn === this.#attempt) {
      this.#abandon(conn);
      return this.#attemptFailed(conn);
    }
    conn.close();
    conn.useful = false;
    return this.#lose('broken');
  }

  /** Takes leave of a connection that another one has replaced. @param {Connection | null} conn */
  #retire(conn) {
    if (!conn) return;
    const suspected = this.#state === State.SUSPECTED;
    this.#liveness.end(suspected && !this.#spoke);
    if (suspected) this.#falseAlarms = this.#spoke ? this.#falseAlarms + 1 : 0;
    for (const alarm of [this.#silence, this.#probe, this.#ackBy, this.#closeBy]) alarm.clear();
    conn.close();
  }

  /** An attempt is over, of which nobody knows what the gateway makes. @param {Connection} conn */
  #abandon(conn) {
    this.#abandoned = this.#hellos;
    this.#attempt = null;
    this.#patience.clear();
    conn.close();
  }

  // ---- the first connection

  /** What came first was no hello, or nothing came. @param {Connection} conn */
  #noHello(conn) {
    if (this.#state !== State.CONNECTING || !this.#mayFallBack()) return this.#broken(conn);
    this.#abandon(conn);
    return this.#fallBack();
  }

  /** Only where nothing says that a gateway is there. */
  #mayFallBack() {
    const { fallback, url, runtime } = this.#plan;
    const origin = originOf(url);
    return fallback && !this.#said.token && !runtime.gateways.has(origin) && moduleOrigin(runtime.module) !== origin;
  }

  #fallBack() {
    try {
      this.#attempt = this.#dial(Kind.PLAIN);
    } catch {
      this.#finish(NO_WAY_BACK);
    }
  }

  /** From here on it is an ordinary WebSocket. @param {Connection} conn @param {string} why */
  #becomePlain(conn, why) {
    this.#live = conn;
    this.#attempt = null;
    this.#protocol = String(conn.transport.protocol ?? '');
    this.#enter(State.PLAIN, why);
    this.#host.opened();
  }

  // ---- upward

  /** Gives the live connection what it may have, and at the end the farewell. */
  #pump() {
    const conn = this.#live;
    if (!conn || conn.bye || conn.verdict || this.#parked) return;
    for (let data = this.#out.next(this.#said.window); data !== undefined; data = this.#out.next(this.#said.window)) {
      conn.send(this.#state === State.PLAIN ? data : escaped(data));
      if (this.#state === State.PLAIN) this.#out.settle();
      else this.#onSent();
    }
    if (this.#farewell && this.#out.drained) this.#sayBye(conn, this.#farewell);
  }

  /** @param {Connection} conn @param {Farewell} farewell */
  #sayBye(conn, { code, reason }) {
    conn.bye = code === 1005 && !this.#said.rules && this.#state !== State.PLAIN ? 1000 : code;
    if (this.#state === State.PLAIN) return code === 1005 ? conn.close() : conn.close(code, reason);
    conn.say('bye', ` ${JSON.stringify({ code: conn.bye, reason })}`);
    this.#onSent();
    this.#closeBy.set(MS.farewell + 2 * this.#said.heartbeat);
  }

  /** @param {Connection} conn @param {number} n */
  #onAck(conn, n) {
    if (!this.#out.ack(n)) return this.#broken(conn);
    conn.useful = true;
    this.#onAnswered();
    this.#pump();
  }

  /** A Blob could not be read: its place can be filled by nothing, so the session ends. */
  #unreadable() {
    if (this.#state === State.ENDED) return;
    if (this.#live) this.#sayBye(this.#live, { code: 1001, reason: 'unreadable Blob' });
    this.#farewell = null;
    this.#finish(NO_WAY_BACK);
  }

  // ---- downward acks

  /**
   * Acks what came, if that is news. While a resume is under way that stated N, an older
   * connection acks nothing beyond it (protocol section 5).
   */
  #ack() {
    const conn = this.#live;
    if (!conn?.hello || conn.bye || conn.verdict) return;
    const n = this.#attempt ? Math.min(conn.last, this.#attempt.stated) : conn.last;
    if (n > conn.acked) {
      conn.acked = n;
      conn.say('ack', ` ${n}`);
    }
    if (n === conn.last) {
      conn.owed = { messages: 0, bytes: 0 };
      this.#ackBy.clear();
    }
  }

  // ---- liveness

  /** Notes a sign of life, for the times in detach and resume. */
  #signOfLife() {
    this.#heard = this.#plan.runtime.now();
    this.#heardWall = this.#plan.runtime.wall();
  }

  /** Milliseconds since the last one, those that the machine slept included. */
  #sinceHeard() {
    const { now, wall } = this.#plan.runtime;
    return Math.max(now() - this.#heard, wall() - this.#heardWall);
  }

  /** Something came on the live connection. */
  #onHeard() {
    if (this.#state === State.SUSPECTED) this.#falseAlarm();
    this.#signOfLife();
    this.#liveness.heard(this.#heard);
  }

  /** Something was sent that the gateway has to answer. */
  #onSent() {
    this.#liveness.sent(this.#plan.runtime.now());
    this.#rearm();
  }

  /** An ack or a pong came. */
  #onAnswered() {
    if (!this.#out.owed) this.#liveness.acked();
  }

  #next() {
    return this.#liveness.next(this.#said, this.#state === State.ATTACHED && !this.#farewell);
  }

  /**
   * Sets the alarm of silence where it would ring too late. Ringing too early is harmless, so
   * messages hardly ever cost a timer.
   */
  #rearm() {
    const conn = this.#live;
    if (!conn?.hello || conn.verdict) return;
    const left = this.#next().at - this.#plan.runtime.now();
    if (left < -this.#silence.late) this.#silence.set(left);
  }

  /** Does what Liveness says is due. */
  #onSilence() {
    const conn = this.#live;
    if (!conn || conn.verdict) return;
    if (conn.drains()) this.#onHeard();
    const { at, what } = this.#next();
    if (at <= this.#plan.runtime.now()) {
      if (what === 'dead') return this.#declareDead(false);
      if (what === 'suspect') this.#suspect();
      else this.#sendPing(what === 'check');
      if (this.#overdue) this.#beat(false);
    }
    this.#rearm();
  }

  /**
   * An alarm rings. One that is late says that the page or the machine slept: that comes first.
   * @param {boolean} late
   * @param {(this: Session, late: boolean) => void} ring
   */
  #onRing(late, ring) {
    if (late) this.#wake();
    if (this.#state !== State.ENDED) ring.call(this, late);
  }

  /** Gives up the live connection for its silence. @param {boolean} slept the page slept meanwhile: the times do not double */
  #declareDead(slept) {
    this.#live?.close();
    this.#lose('silence', { silent: !slept });
  }

  /** @param {boolean} check whether it is sent out of suspicion */
  #sendPing(check) {
    this.#live?.say('ping', ` ${++this.#pings}`);
    this.#liveness.ping(this.#plan.runtime.now(), this.#pings, check);
  }

  /** How long #ping waits for the answer. */
  #probeLimit() {
    return Math.max(MS.probe, 4 * this.#liveness.rtt);
  }

  /**
   * Asks for an answer, soon. Only the answer to this very ping will do, or to a later one:
   * whatever else comes now may have waited on this side since before the page slept.
   */
  #ping() {
    if (!this.#live?.hello || this.#probe.armed) return;
    this.#sendPing(false);
    this.#probed = this.#pings;
    this.#probe.set(this.#probeLimit());
    this.#rearm();
  }

  /** @param {Connection} conn @param {number} n */
  #onPong(conn, n) {
    if (conn !== this.#live) return;
    this.#liveness.pong(this.#heard, n);
    this.#onAnswered();
    if (n >= this.#probed) this.#probe.clear();
  }

  /** @param {boolean} late */
  #onProbe(late) {
    if (late) return; // what slept through the answer has asked again
    this.#live?.close();
    this.#lose('no answer');
  }

  /**
   * Whether the gateway should have been heard by now, and has had half its time to answer. A
   * library that was last served before this silence may not wait until it is over.
   */
  get #overdue() {
    const { heartbeat, answer } = this.#said;
    return heartbeat > 0 && answer > 0 && this.#sinceHeard() >= heartbeat + answer / 2;
  }

  /** Keeps a library's own watchdog quiet, while only the gateway knows the game server. @param {boolean} late */
  #beat(late) {
    const { keepalive } = this.#plan;
    if (!keepalive) return;
    this.#beatAt.set(keepalive.every);
    if (this.readyState !== ReadyState.OPEN || (this.#state === State.ATTACHED && !late && !this.#overdue)) return;
    const { receive, answer } = keepalive;
    if (answer !== undefined) this.#standIns = 1; // an answer goes to the newest
    this.#host.message(typeof receive === 'string' ? receive : bytesOf(receive));
  }

  /** By how much the alarm that should have rung first is late; negative: none is. */
  #late() {
    return this.#timers.reduce((max, { late }) => Math.max(max, late), -Infinity);
  }

  /** Page or machine slept: what is known of the network is old. */
  #wake() {
    for (const alarm of this.#timers) alarm.forgive();
    const slept = this.#attempt;
    if (this.#live && this.#sinceHeard() >= this.#liveness.limit(this.#said)) this.#declareDead(true);
    if (this.#lost) {
      if (slept && slept === this.#attempt) this.#abandon(slept);
      this.#owing = true;
      this.#tryAgain();
    } else if (this.#live) {
      this.#liveness.reset(this.#plan.runtime.now());
      this.#probe.clear(); // an answer may have been slept through
      this.#ping();
    }
  }

  /** Whether the gateway named a time to come back that is still to come. */
  #heldBack() {
    return this.#told && this.#pace.late < 0 && this.#pace.armed;
  }

  // ---- the way back

  /**
   * The live connection is lost. Where it was suspected, detach has fired already, and an
   * attempt under way goes on as the resume.
   * @param {string} why
   */
  #lose(why, { silent = false, after = 0 } = {}) {
    const conn = this.#live;
    if (!conn) return;
    const { now } = this.#plan.runtime;
    const known = this.#state === State.SUSPECTED;
    this.#live = null;
    for (const alarm of [this.#silence, this.#probe, this.#ackBy, this.#closeBy, this.#moveAt]) alarm.clear();
    this.#liveness.end(silent);
    if (known && !this.#spoke) this.#falseAlarms = 0;
    const settled = now() - conn.since >= MS.settled;
    this.#pacer.lost(conn.useful || (why !== 'broken' && settled));
    this.#dropped = now();
    if (conn.useful || settled || !conn.awaited) this.#futile = 0;
    else if (this.#futile++ === 0) this.#futileSince = now();
    else if (this.#futile >= FUTILE && now() - this.#futileSince >= MS.futile) return this.#finish(NO_WAY_BACK);
    this.#owing = true;
    this.#enter(State.DETACHED, why);
    this.#giveUp.set(this.#farewell ? this.#said.grace : this.#said.grace + 2 * this.#said.heartbeat);
    if (known) return this.#comeBack(Math.max(after, this.#heldBack() ? -this.#pace.late : 0));
    this.#tries = 0;
    return this.#failed(after);
  }

  /**
   * The live connection was lively, is silent, and answers no ping. It stays in use both ways
   * until a resume beside it has its hello.
   */
  #suspect() {
    this.#liveness.suspected();
    this.#spoke = false;
    this.#tries = 0;
    this.#enter(State.SUSPECTED, 'silence');
    this.#failed(0);
  }

  /**
   * Something came on the suspected connection. An attempt without its 101 is dropped. After
   * the 101 the attempt goes on, since the gateway may have superseded this connection.
   */
  #falseAlarm() {
    this.#spoke = true;
    if (this.#attempt?.opened) return;
    if (this.#attempt) this.#abandon(this.#attempt);
    this.#falseAlarms++;
    this.#pace.clear();
    this.#enter(State.ATTACHED, 'false alarm');
    this.#resumed(0, 0, this.#sinceHeard());
  }

  /** @param {number} replay @param {number} lost @param {number} ms */
  #resumed(replay, lost, ms, more = {}) {
    this.#host.notice('resume', { replay, lost, ms, ...more });
    if (replay === 0) this.#host.notice('replayed', {});
  }

  /** The connection is lost, or an attempt has failed. @param {number} after what the gateway asked for, or 0 */
  #failed(after) {
    this.#tries++;
    if (this.#state === State.RELOADED) return this.#comeBack(after);
    this.#host.notice('detach', { attempt: this.#tries, since: this.#heardWall });
    if (this.#tries === 1) this.#beat(false); // the library has waited for some time already
    this.#comeBack(after);
  }

  /**
   * Sees to the next attempt. The pause counts from the start of the one before: after one
   * that ran out of time the next follows at once.
   * @param {number} after what the gateway asked for, or 0
   */
  #comeBack(after) {
    if (this.#attempt || !(this.detached || this.#lost)) return;
    const least = this.#state === State.SUSPECTED ? MS.beside * 2 ** this.#falseAlarms : this.#pacer.next();
    const pause = Math.max(after, this.#begun + least - this.#plan.runtime.now(), 0);
    this.#told = after > 0;
    if (this.#told && this.#lost) {
      this.#owing = true;
      this.#over = false;
      if (-this.#giveUp.late < pause || !this.#giveUp.armed) this.#giveUp.set(pause + 1);
    }
    if (pause === 0 && this.#tries === 1) this.#tryAgain();
    else this.#pace.set(pause);
  }

  #tryAgain() {
    if (this.#attempt || !(this.detached || this.#lost)) return;
    // The browser may be wrong (it does not know of loopback): believed for a while only.
    if (this.#plan.runtime.navigator?.onLine === false && !this.#waited && !this.#over) {
      this.#waited = true;
      return this.#pace.set(MS.offline);
    }
    this.#resume();
  }

  /** One attempt at a resume. It runs beside a live connection for a move, or where that one is suspected. */
  #resume() {
    this.#pace.clear();
    this.#waited = this.#told = false;
    this.#begun = this.#plan.runtime.now();
    try {
      this.#attempt = this.#dial(Kind.RESUME);
    } catch {
      return this.#attemptFailed(null);
    }
    this.#attempt.owing = this.#owing;
    this.#owing = false;
    this.#patience.set(this.#connectLimit());
  }

  /**
   * How long an attempt may take to its 101. On a network that swallows everything, what
   * counts is how soon after its return the next SYN goes out. A system sends one at 0, 1, 3
   * and 7 s of an attempt (or 0, 3 and 9; newer Linux each second at first), and the next
   * attempt begins with another after 4 to 5 s: no moment is further than 3 s from the next.
   * On a slow link a handshake takes up to 4 round trips (TCP, TLS 1.2, HTTP). An attempt that
   * would come about must not be cut, so the limit grows with the round trip, and leaves as
   * much as the slowest handshake took to one whose first two SYNs were lost. As long as it is
   * below 11 s, the next SYN is at most 4 s away.
   */
  #connectLimit() {
    return Math.min(Math.max(MS.connect, 4 * this.#liveness.rtt, this.#slowest + MS.lostSyns), MS.connectMax);
  }

  /** @param {Connection | null} conn @param {number} [after] */
  #attemptFailed(conn, after = 0) {
    this.#attempt = null;
    this.#patience.clear();
    if (this.#state === State.CONNECTING) {
      if (conn && !conn.opened && this.#mayFallBack()) return this.#fallBack();
      return this.#finish(NO_WAY_BACK);
    }
    this.#ack(); // what was held back for its sake
    if (this.#state === State.ATTACHED) return this.#moveAgain(after);
    if (this.#live && this.#spoke) return this.#falseAlarm();
    if (this.#over && !after) return this.#noWayBack();
    return this.#failed(after);
  }

  /** An attempt takes too long. @param {boolean} late */
  #onPatience(late) {
    const conn = this.#attempt;
    if (!conn) return;
    if (this.#state !== State.CONNECTING) {
      if (late && this.#lost) return; // waking has begun another
      this.#abandon(conn);
      return this.#attemptFailed(conn);
    }
    if (late)
      this.#patience.set(MS.firstHello); // its hello may have come while the page slept
    else this.#noHello(conn);
  }

  /** The time is over. An attempt that was answered, or that is owed, is waited for. */
  #onGiveUp() {
    const conn = this.#attempt;
    if (this.#farewell) return this.#finish(NO_WAY_BACK);
    if (conn && !conn.opened && !conn.owing) this.#abandon(conn);
    this.#over = true;
    if (this.#attempt) return;
    if (this.#owing) return this.#tryAgain();
    this.#noWayBack();
  }

  /** No connection could be had in time, or this session is refused for good. */
  #noWayBack() {
    if (this.#state === State.RELOADED) this.#beginAnew();
    else this.#finish(NO_WAY_BACK);
  }

  /** @param {number} within */
  #onMove(within) {
    const { now, random } = this.#plan.runtime;
    this.#moveBy = now() + within;
    this.#moveAt.set(random() * within);
  }

  #move() {
    const conn = this.#live;
    if (conn && !this.#attempt && !conn.bye && !conn.verdict) this.#resume();
  }

  /** @param {number} after what the gateway asked for, or 0 */
  #moveAgain(after) {
    const pause = Math.max(1000, after);
    const left = this.#moveBy - this.#plan.runtime.now();
    if (left > pause) this.#moveAt.set(pause + this.#plan.runtime.random() * (left - pause));
  }

  // ---- ends

  /**
   * `end` or `close` on a live connection: the Close frame follows.
   * @param {Connection} conn
   * @param {Verdict} verdict
   */
  #onVerdict(conn, verdict) {
    conn.verdict = verdict;
    if (verdict.retry) this.#onCloseBy();
    else this.#closeBy.set(MS.closing);
  }

  /** @param {Connection} conn @param {Verdict} verdict */
  #onCloseVerb(conn, verdict) {
    const own = { ...verdict, retry: verdict.retry || this.#isMine(conn, verdict) };
    return conn.hello ? this.#onVerdict(conn, own) : this.#onRefusal(conn, own);
  }

  /** The Close frame did not come, or need not be waited for. */
  #onCloseBy() {
    const conn = this.#live;
    if (!conn) return;
    conn.close();
    if (conn.verdict?.retry === false) return this.#finishBy(conn.verdict);
    this.#lose('closed', { after: conn.verdict?.after });
  }

  /**
   * `close` in answer to an attempt. With retry false it speaks of the token and the count
   * that were stated, and only of them.
   * @param {Connection} conn
   * @param {Verdict} verdict
   */
  #onRefusal(conn, verdict) {
    const stale = conn.token !== this.#said.token || conn.stated !== this.#received;
    conn.close();
    if (this.#state === State.CONNECTING) return this.#onFirstRefused(conn, verdict);
    if (verdict.retry || stale) return this.#attemptFailed(conn, verdict.after);
    if (this.#state === State.RELOADED) return this.#beginAnew();
    if (!this.#live) return this.#finishBy(verdict);
    this.#moveBy = 0; // the older connection goes on
    return this.#attemptFailed(conn);
  }

  /**
   * The first handshake is refused. Only where it was a new session's is it said why: a
   * session that was made ahead is one like all others.
   * @param {Connection} conn
   * @param {Verdict} verdict
   */
  #onFirstRefused(conn, verdict) {
    const { code, reason, status, retry, after } = verdict;
    if (conn.token) return retry ? this.#finish(NO_WAY_BACK) : this.#finishBy(verdict);
    this.#plan.runtime.gateways.add(originOf(this.#plan.url));
    return this.#finish({ code, reason, wasClean: false, error: true, status, retry, retry_after_ms: after });
  }

  /**
   * A 4409 that an attempt of our own may have caused: one that is under way, or one that
   * ended in the dark since the hello before the newest (protocol section 6). That goes for
   * a connection that waits for its hello as well: nothing says that what we answered to
   * the newest hello, and what spends the older generations, has come through.
   * @param {Connection} conn
   * @param {Verdict} verdict
   */
  #isMine(conn, { code }) {
    const before = Math.max(this.#hellos - 1, 0);
    return code === 4409 && ((this.#attempt !== null && this.#attempt !== conn) || this.#abandoned >= before);
  }

  /** @param {Verdict} said */
  #finishBy({ code, reason, final }) {
    this.#finish({ code, reason, wasClean: true, error: false }, final);
  }

  /**
   * The end, whatever brought it: an application that closed is told its own code, unless
   * the game server closed before it heard of that.
   * @param {Ending} ending
   * @param {boolean} [final] whether the game server closed
   */
  #finish(ending, final = this.#state === State.PLAIN) {
    if (this.#state === State.ENDED) return;
    const own = final ? null : this.#farewell;
    const told = own ? { code: own.code, reason: own.reason, wasClean: true, error: false } : ending;
    for (const alarm of this.#timers) alarm.clear();
    this.#watchPage('removeEventListener');
    this.#enter(State.ENDED, `${told.code}`);
    const open = [this.#live, this.#attempt];
    this.#live = this.#attempt = null;
    for (const conn of open) conn?.close();
    this.#out.drop();
    this.#host.closed(told);
  }

  // ---- page life

  /** @param {'addEventListener' | 'removeEventListener'} change */
  #watchPage(change) {
    const { window, document } = this.#plan.runtime;
    for (const type of ['online', 'pageshow', 'pagehide']) window?.[change]?.(type, this.#onPage);
    for (const type of ['visibilitychange', 'freeze', 'resume']) document?.[change]?.(type, this.#onPage);
  }

  /**
   * All that the page's life means to the session. Coming back, in whatever way, is a
   * reason to ask whether the connection still lives and to try again at once.
   * @param {any} event
   */
  #onPage = (event) => {
    const hidden = this.#plan.runtime.document?.visibilityState === 'hidden';
    if (this.#parked) return event.type === 'pageshow' ? this.#unpark() : undefined;
    if (event.type === 'pagehide' && (!event.persisted || this.#plan.records)) {
      this.#ack();
      if (!event.persisted || this.#park()) return this.#leave();
    }
    if (event.type === 'pagehide' || event.type === 'freeze' || (event.type === 'visibilitychange' && hidden)) {
      return this.#ack(); // timers may be late from here on
    }
    if (this.#late() > MS.slept) return this.#wake();
    if (this.#state === State.ATTACHED) return this.#ping();
    if (!this.#lost || this.#attempt || this.#heldBack()) return undefined;
    return event.type === 'online' ? this.#resume() : this.#tryAgain();
  };

  /** The page is left: the session is kept for the next page, or no ghost is to stay in the game. */
  #leave() {
    if (this.#park() || (this.#state !== State.ATTACHED && !this.detached)) return;
    if (this.#parked) this.#takeBack();
    this.#farewell ??= { code: 1001, reason: '' };
    this.#pump();
    if (this.#live && !this.#live.bye) this.#sayBye(this.#live, this.#farewell);
  }

  // ---- reloads

  /** Writes the record from which another page of this tab goes on. Returns false where it cannot. */
  #park() {
    const { records, runtime } = this.#plan;
    if (!records || this.#farewell || (this.#state !== State.ATTACHED && !this.detached && !this.#lost)) return false;
    const out = this.#out.save();
    const { session: id, grace, heartbeat } = this.#said;
    const record = {
      id,
      born: this.#born,
      saved: runtime.wall(),
      keep: grace + 2 * heartbeat,
      said: this.#said,
      received: this.#received,
      heard: this.#heardWall,
      out,
    };
    if (!out || !records.put(record)) return false;
    this.#parked = true;
    for (const alarm of this.#timers) alarm.clear();
    return true;
  }

  /** @param {SavedSession} saved @returns {boolean} whether it makes sense */
  #restore({ said, received, heard, out, born, saved, keep }) {
    const { now, wall } = this.#plan.runtime;
    const outbox = Outbox.restore(out);
    if (!outbox || !isToken(said?.token)) return false;
    this.#out = outbox;
    const { messages, bytes } = said.window ?? {}; // in JSON, Infinity is null
    this.#said = { ...said, window: { messages: messages ?? Infinity, bytes: bytes ?? Infinity } };
    this.#received = received;
    this.#born = born;
    this.#heard = now() - (wall() - heard);
    this.#heardWall = heard;
    this.#owing = true;
    this.#enter(State.RELOADED, 'record');
    this.#giveUp.set(saved + keep - wall());
    this.#tries = 1;
    return true;
  }

  /** Takes the record out again. Returns false where another page has. */
  #takeBack() {
    this.#parked = false;
    return this.#plan.records?.takeBack(this.#said.session);
  }

  /** The page is shown again: the session is its own again, unless another page took it. */
  #unpark() {
    if (!this.#takeBack()) return this.#finish(NO_WAY_BACK);
    if (this.#live) {
      this.#live.close();
      return this.#lose('parked');
    }
    if (this.#attempt) this.#abandon(this.#attempt);
    this.#owing = true;
    this.#giveUp.set(this.#said.grace + 2 * this.#said.heartbeat);
    return this.#tryAgain();
  }

  /** There is no way back into the session of the page before: this page begins one of its own. */
  #beginAnew() {
    for (const alarm of this.#timers) alarm.clear();
    this.#said = noTerms(this.#plan.token);
    this.#out = new Outbox();
    this.#received = this.#hellos = this.#tries = 0;
    this.#abandoned = -1;
    this.#owing = this.#over = this.#told = this.#waited = false;
    this.#pacer = new Pacer(this.#plan.runtime.random);
    this.#born = this.#plan.runtime.wall();
    this.#enter(State.CONNECTING, 'anew');
    try {
      this.#attempt = this.#dial(Kind.FIRST);
    } catch {
      this.#finish(NO_WAY_BACK);
    }
  }
}
