import { Alarm } from './alarm.js';
import { Connection, dial, leave, listen } from './connection.js';
import { StandIns } from './keepalive.js';
import { Outbox } from './outbox.js';
import { Pacer } from './pacer.js';
import { watchPage } from './pagelife.js';
import { Parts } from './parts.js';
import { FORBIDDEN, GATEWAY, NOBODY, Reach, isBrowser } from './reach.js';
import * as ReadyState from './readystate.js';
import { Records } from './records.js';
import { Silence } from './silence.js';
import * as State from './state.js';
import * as MS from './times.js';
import { moduleOrigin, originOf } from './url.js';
import { DLE, VERSION, escaped, isToken, readControl, sizeOf } from './wire.js';

/** @typedef {import('./types.js').Plan} Plan */
/** @typedef {import('./types.js').Host} Host */
/** @typedef {import('./types.js').CloseDetail} CloseDetail */
/** @typedef {import('./types.js').Message} Message */
/** @typedef {import('./types.js').Verdict} Verdict */
/** @typedef {import('./types.js').Farewell} Farewell */
/** @typedef {import('./address.js').Address} Address */
/** @typedef {import('./records.js').SavedSession} SavedSession */
/** @typedef {import('./wire.js').Terms} Terms */

/** @type {CloseDetail} */
const NO_WAY_BACK = { code: 1006, reason: '', wasClean: false };

/** @param {{ code: number, reason: string }} ending @returns {CloseDetail} */
const clean = ({ code, reason }) => ({ code, reason, wasClean: true });

/**
 * A Session is what outlives a connection: counts both ways, acks, the way back, the end.
 * It has at most two connections: `live`, which has had its hello, and `attempt`, which has
 * not. What comes from any other one is not listened to.
 *
 * Its parts have state of their own: Outbox what was sent, Connection what came and was said
 * on it, Silence when it was last heard, Pacer when to try again, StandIns the heartbeats of
 * the game's that are missing.
 */
export class Session {
  #plan;
  #host;
  #runtime;
  /** @type {Records | null} */
  #records = null;
  #url = ''; // of the newest attempt
  /** @type {number} */
  #state = State.CONNECTING;

  // Connections. `hellos` counts them; `abandoned` is how many there had been when an
  // attempt last ended, by us or by itself, without hello or refusal: it may have reached
  // the gateway, or may reach it yet.
  /** @type {Connection | null} */
  _live = null;
  /** @type {Connection | null} */
  #attempt = null;
  #hellos = 0;
  #abandoned = -2; // never

  /** The newest hello, with what `token` and `grace` have changed in it since. @type {Terms} */
  _said;

  // Counts: `received` downward, the outbox upward.
  #received = 0;
  #out = new Outbox();
  #refused = 0; // bytes given to send() after the end
  #turn = 0; // bufferedAmount does not fall below this before the application's turn is over, as native

  #silence;
  #standIns;

  // The way back.
  #pacer;
  /** HTTP probes, where the engine holds WebSockets back. @type {Reach | null} */
  #reach = null;
  #probedAt = 0; // when the newest probe began
  #hung = false; // the connection was lost in silence, or is suspected
  #mayTryAt = 0; // an attempt that no probe backs waits until then
  #gap = 0; // between two such attempts
  #spoke = false; // the suspected connection did, too late for the attempt to be dropped
  #dropped = 0; // when the live connection was given up
  #tries = 0;
  #owing = false; // an attempt must be made even when the time is over
  #over = false; // the time is over: the attempt under way is the last
  #told = false; // the gateway said when to come back
  #waited = false; // the pause of an offline browser has been kept
  #moveBy = 0;
  #upstream = 'back'; // the game server's state, as the gateway says it

  // Page life.
  #born;
  #leftAt = -Infinity; // when the page was perhaps about to be left (Firefox)
  #parked = false; // the page is gone, or in the back/forward cache: its record is in the store
  #watching = new AbortController(); // aborted at the end

  /** @type {Farewell | null} */
  #farewell = null;
  /** A close() while the page is unloaded, to be done if it stays. @type {(() => void) | null} */
  #unloading = null;

  /** @type {Alarm[]} */
  #timers = [];
  #patience; // an attempt has had its time
  #pace; // the next attempt
  #giveUp; // the way back is closed
  #ackBy; // an ack is due
  #closeBy; // no Close frame came
  #unloadBy; // the page was not left
  #moveAt; // the moment of a move

  _protocol = '';

  /** Extensions belong to a connection. */
  _extensions = '';

  /** Whether it was begun before the page was reloaded. */
  _reloaded = false;

  /**
   * @param {Plan} plan
   * @param {Host} host
   * @param {boolean} restores whether it may go on with the session of the page before
   */
  constructor(plan, host, restores) {
    const runtime = plan._runtime;
    /** @param {(this: Session, late: boolean) => void} ring @param {number} [retries] */
    const alarm = (ring, retries = 0) => {
      const made = new Alarm(runtime, (late) => this.#onRing(late, ring), retries);
      this.#timers.push(made);
      return made;
    };
    this.#plan = plan;
    this.#host = host;
    this.#runtime = runtime;
    this._said = { session: '', token: plan._token, grace_ms: 0, heartbeat_ms: 0 };
    this.#born = runtime.wall();
    this.#pacer = new Pacer(runtime.random);
    this.#patience = alarm(this.#onPatience, 2);
    this.#pace = alarm(this.#tryAgain);
    this.#giveUp = alarm(this.#onGiveUp);
    this.#ackBy = alarm(this.#ack);
    this.#closeBy = alarm(this.#onCloseBy);
    this.#moveAt = alarm(this.#move);
    this.#unloadBy = alarm(() => this.#unloading?.());
    this.#silence = new Silence(runtime, alarm, this);
    this.#standIns = new StandIns(plan._keepalive, alarm, (late) => this.#needsStandIn(late), host._message);
    const { signal } = this.#watching;
    if (isBrowser(runtime)) this.#reach = new Reach(runtime, signal);
    watchPage(runtime, signal, (event) => this.#onPage(event));
    if (plan._store)
      this.#address(
        (address) => this.#begin(address, restores),
        () => this.#finish(),
      );
    else this.#connect();
  }

  /** Begins where there may be a record: they are kept by URL, without what may change in it. @param {Address} address @param {boolean} restores */
  #begin({ url }, restores) {
    if (this.#state !== State.CONNECTING) return;
    const plan = this.#plan;
    this.#records = new Records(plan._store, plan._ticketed ? url.replace(/\?.*/s, '') : url);
    if (restores && this.#restore(this.#records._take(this.#runtime.wall()))) this.#comeBack(0);
    else this.#connect();
  }

  // ---- the application's side

  /** @returns {0 | 1 | 2} CLOSED comes with the event */
  get _readyState() {
    if (this.#state < State.ATTACHED) return ReadyState.CONNECTING;
    const closing =
      this.#state === State.ENDED || this.#farewell || this.#unloading || this._live?._verdict?.retry === false;
    return closing ? ReadyState.CLOSING : ReadyState.OPEN;
  }

  get _id() {
    return this._said.session || null;
  }

  get _detached() {
    return this.#state === State.DETACHED || this.#state === State.SUSPECTED;
  }

  /** Whether it looks for a connection. One that it still has is suspected. */
  get #seeking() {
    return this._detached || this.#state === State.RELOADED;
  }

  get _bufferedAmount() {
    return Math.max(this.#out._waiting + this.#refused, this.#turn);
  }

  /**
   * Takes a message; a Blob keeps its place while it is read.
   * @param {Message} data
   * @param {number} bytes
   */
  _send(data, bytes) {
    if (!this.#turn) queueMicrotask(() => (this.#turn = 0));
    this.#turn = this._bufferedAmount + bytes;
    if (this.#standIns._takes(data)) return;
    if (this._readyState !== ReadyState.OPEN) {
      this.#refused += bytes;
    } else if (data instanceof Blob) {
      const entry = this.#out._add(null, bytes);
      data.arrayBuffer().then(
        (read) => {
          entry.data = read;
          this.#pump();
        },
        () => this.#onUnreadable(),
      );
    } else {
      this.#out._add(data, bytes);
      this.#pump();
    }
    if (this.#parked) this.#leave(); // with this message, too
  }

  /** @param {number | undefined} code @param {string} reason */
  _close(code, reason) {
    if (this._readyState === ReadyState.CLOSING) return;
    if (this._readyState === ReadyState.CONNECTING) return this.#giveUpFirst();
    if (this.#records && /unload$|^pagehide$/.test(this.#runtime.window?.event?.type))
      return this.#closeLater(code, reason);
    this.#farewell = { code: code ?? (reason ? 1000 : 1005), reason };
    if (this.#parked && !this.#takeBack()) return this.#finish();
    if (this.#state === State.DETACHED) {
      const left = this.#dropped + this._said.grace_ms - this.#runtime.now();
      this.#giveUp._set(Math.max(left, 0));
    }
    this.#pump();
  }

  // ---- connections

  /** close() before the first hello. A session that was made ahead is left to who has its token. */
  #giveUpFirst() {
    const { _transport: transport, _bare: bare } = this.#attempt ?? {};
    if (transport && !bare && !this.#plan._token) {
      this.#attempt = null;
      leave(transport, this.#runtime);
    }
    this.#finish();
  }

  /**
   * A page that keeps its session over a reload closes its socket as it is unloaded: it is
   * reloaded, perhaps. If it is still there a moment later, it stays, and the socket is closed.
   * @param {number | undefined} code @param {string} reason
   */
  #closeLater(code, reason) {
    this.#unloading = () => {
      this.#unloading = null;
      this._close(code, reason);
    };
    this.#unloadBy._set(MS.unload);
  }

  /** @param {number} next @param {string} why */
  #enter(next, why) {
    this.#state = next;
    this.#runtime.trace(next, why);
  }

  /** The address of an attempt, at once or later. @param {(address: Address) => void} use @param {() => void} fail */
  #address(use, fail) {
    const address = this.#plan._address();
    if (address instanceof Promise) address.then(use).catch(fail);
    else use(address);
  }

  /**
   * An attempt. Throws where the URL is fixed and no connection may be opened.
   * @param {boolean} bare whether it makes no offer
   */
  #connect(bare = this.#plan._bare) {
    const conn = new Connection(this.#runtime.now(), this._said.token, this.#received, this.#out._received);
    this.#attempt = conn;
    this.#address(
      (address) => conn === this.#attempt && this.#open(conn, address, bare),
      () => conn === this.#attempt && this.#attemptLost(conn),
    );
  }

  /** protocol section 2: the application's subprotocols first. @param {Connection} conn @param {Address} address @param {boolean} bare */
  #open(conn, { url, protocols }, bare) {
    const { route } = this._said;
    const offer = [...protocols.filter((name) => !name.startsWith('reseat.')), VERSION, 'reseat.parts'];
    if (conn._token) offer.push(`reseat.token.${conn._token}`, `reseat.received.${conn._stated}`);
    else if (this.#plan._refusals) offer.push('reseat.refusals');
    offer.push(`reseat.settled.${conn._settled}.${this.#out._handed}`);
    if (isToken(route)) offer.push(`reseat.route.${route}`);
    this.#url = url;
    this.#host._connects(url);
    conn._protocols = protocols;
    conn._bare = bare;
    const transport = dial(this.#plan._Transport, url, bare ? protocols : offer);
    conn._transport = transport;
    conn._since = this.#runtime.now();
    if (this.#state !== State.CONNECTING)
      this.#patience._set(this.#limit() + (this.#reach?._isGecko ? this.#pacer._heldBack : 0));
    /** @param {string} type @param {(this: Session, conn: Connection, event: any) => void} heard */
    const on = (type, heard) =>
      listen(
        transport,
        type,
        (event) => (conn === this._live || conn === this.#attempt) && heard.call(this, conn, event),
      );
    on('open', this.#onOpen);
    on('message', this.#onMessage);
    on('close', this.#onClose);
  }

  /** @param {Connection} conn */
  #onOpen(conn) {
    const transport = conn._transport;
    const { protocol = VERSION } = transport;
    if (conn._bare || protocol !== VERSION) {
      // A server that does not know reseat.v1 took one of the application's subprotocols. Or none: then
      // Chromium fails the handshake, and Firefox and WebKit open.
      if (!conn._bare && (!protocol || this.#state !== State.CONNECTING || this._said.token || !this.#plan._fallback))
        return this.#attemptLost(conn);
      this.#attempt = null;
      this.#stop('plain');
      return this.#host._plain(transport);
    }
    conn._opened = true;
    const ms = this.#runtime.now() - conn._since;
    this.#pacer._opened(ms);
    this.#silence._opened(ms);
    this.#patience._set(this._said.token ? MS.resumeHello : MS.firstHello);
  }

  /** @param {Connection} conn @param {any} event */
  #onMessage(conn, { data }) {
    if (this.#parked) return; // the record is written: it comes again
    const late = this.#lateness();
    this.#silence._read(late > MS.paused, conn === this._live);
    if (conn._verdict) return;
    if (conn._parts && typeof data !== 'string') this.#onPart(conn, data);
    else this.#onWhole(conn, data);
    if (conn === this._live) this.#silence._rearm();
    if (late > MS.slept) this.#wake();
  }

  /** @param {Connection} conn @param {any} data */
  #onWhole(conn, data) {
    if (data[0] !== DLE) this.#onData(conn, data);
    else if (data[1] === DLE) this.#onData(conn, data.slice(1));
    else this.#onControl(conn, data.slice(1));
  }

  /** Part of a large message (protocol section 3.1). @param {Connection} conn @param {any} data */
  #onPart(conn, data) {
    let whole;
    try {
      whole = conn._parts?._add(data);
    } catch {
      return this.#broken(conn);
    }
    this._heard();
    this.#silence._queued();
    if (conn._usable) conn._tookPart(this.#runtime.now());
    if (whole === undefined) return;
    conn._parts = undefined;
    this.#onAnswered();
    this.#onWhole(conn, whole);
  }

  /** @param {Connection} conn @param {any} data */
  #onData(conn, data) {
    if (!conn._hello) return this.#attemptLost(conn, true);
    this._heard();
    const due = conn._took(sizeOf(data));
    const number = conn._last;
    this.#silence._received(number > this.#received);
    if (number > this.#received) {
      this.#received = number;
      conn._useful = true;
      if (this._readyState === ReadyState.OPEN) this.#host._message(data);
    }
    if (conn._replay > 0 && --conn._replay === 0) this.#host._notice('replayed');
    if (conn !== this._live) return; // the application or its messages ended it
    if (due) this.#ack();
    else if (!this.#ackBy._armed) this.#ackBy._set(MS.ack);
  }

  /** @param {Connection} conn @param {string} text */
  #onControl(conn, text) {
    const first = this.#state === State.CONNECTING;
    let message;
    try {
      message = readControl(text);
    } catch {
      return first && !text.startsWith('hello') ? this.#attemptLost(conn, true) : this.#broken(conn);
    }
    const { verb, argument } = message;
    if (!conn._hello && verb !== 'hello' && verb !== 'close') {
      if (first || argument !== undefined) this.#attemptLost(conn, true);
      return;
    }
    // protocol section 5: a 4409 is no sign of life; it may be what a resume of ours brought about.
    if (conn === this._live && (verb !== 'close' || argument.code !== 4409)) this._heard();
    switch (verb) {
      case 'hello':
        return this.#onHello(conn, argument);
      case 'ack':
        return this.#onAck(conn, argument);
      case 'parts':
        try {
          conn._parts = new Parts(argument);
          this.#silence._received(false);
          this.#silence._queued();
        } catch {
          this.#broken(conn); // more than there is memory for
        }
        return;
      case 'pong':
        this.#silence._pong(Number(argument));
        return this.#onAnswered();
      case 'token':
        this._said.token = argument;
        return;
      case 'grace':
        this._said.grace_ms = argument;
        return;
      case 'ping':
        this.#ack();
        return conn._say('pong', argument);
      case 'move':
        this.#moveBy = this.#runtime.now() + argument;
        return this.#planMove(0);
      case 'upstream':
        // A resume may bring what is known already.
        if (argument !== this.#upstream) this.#host._notice(verb, { state: (this.#upstream = argument) });
        return;
      case 'end':
        return this.#onVerdict(conn, { ...argument, retry: false, _final: true });
      case 'close':
        return this.#onCloseVerb(conn, argument);
      // Others: reseat.v1 may grow.
    }
  }

  /** @param {Connection} conn @param {import('./wire.js').Hello} hello */
  #onHello(conn, hello) {
    const foreign = this._said.session && hello.session !== this._said.session;
    // protocol section 8: its numbers would not be those that the older connection has used since.
    const outdated =
      hello.moved === 'failover' && (this.#received > conn._stated || this.#out._received > conn._settled);
    if (conn._hello || foreign || outdated || !this.#out._admits(hello.received)) return this.#broken(conn);
    const before = this.#state;
    const ms = this.#silence._since;
    this.#gap = this.#mayTryAt = 0;
    this.#retire(); // protocol section 8: nothing more is taken from the older one
    this._live = conn;
    this.#attempt = null;
    for (const timer of [this.#patience, this.#pace, this.#giveUp]) timer._clear();
    this.#owing = this.#over = this.#told = this.#waited = false;
    conn._hello = ++this.#hellos;
    conn._since = this.#runtime.now();
    conn._replay = hello.replay;
    conn._awaited = hello.replay > 0 || this.#out._unacked;
    conn._last = conn._stated + hello.lost;
    this.#received = Math.max(this.#received, conn._last);
    this._said = hello;
    this.#enter(State.ATTACHED, 'hello');
    this.#silence._begin();
    this.#ack();
    this.#out._rewind(hello.received);
    this.#pump();
    this.#silence._rearm();
    if (before >= State.ATTACHED) return this.#resumed(hello, ms);
    this._reloaded = before === State.RELOADED;
    this._protocol = `${hello.protocol ?? ''}`;
    this.#foundGateway();
    // As a browser fails a handshake whose server picks no subprotocol of those offered (WebSockets
    // Standard, "establish a WebSocket connection"). One that was made ahead has what its maker asked for.
    if (!conn._token && (conn._protocols.length > 0 ? !conn._protocols.includes(this._protocol) : this._protocol)) {
      this.#sayBye(conn, { code: 1001, reason: '' });
      return this.#finish();
    }
    this.#standIns._beat();
    this.#host._opened();
    if (this._reloaded) this.#resumed(hello, ms, true);
  }

  /** The origin is a gateway's: there is no fallback towards it any more. */
  #foundGateway() {
    this.#runtime.gateways.add(originOf(this.#url));
  }

  /** Only where nothing says that a gateway is there. */
  #mayFallBack() {
    if (!this.#url) return false; // the address is not known
    const origin = originOf(this.#url);
    return (
      this.#plan._fallback &&
      !this._said.token &&
      !this.#runtime.gateways.has(origin) &&
      moduleOrigin(this.#runtime.module) !== origin
    );
  }

  /** @param {Connection} conn @param {any} event */
  #onClose(conn, event) {
    if (this.#parked) return;
    if (conn === this.#attempt) return this.#attemptLost(conn);
    if (event.wasClean) this.#silence._sign(); // a Close frame came
    if (conn._verdict?.retry === false) return this.#finishBy(conn._verdict);
    if (conn._bye && event.code === conn._bye) return this.#finish(); // told as the application's own
    // What closes as the page may be left: let it go first, since what resumes then would not be heard.
    this._lose('drop', this.#runtime.now() - this.#leftAt < MS.unload ? MS.unload : 0);
  }

  /** What the gateway must not send: the connection is no good. @param {Connection} conn */
  #broken(conn) {
    if (conn === this.#attempt) return this.#attemptLost(conn);
    conn._useful = false;
    this._lose('broken');
  }

  /** Takes leave of the live connection, which another one replaces. */
  #retire() {
    if (!this._live) return;
    const suspected = this.#state === State.SUSPECTED;
    this.#leaveLive(suspected && !this.#spoke);
    if (suspected) this.#pacer._suspected(this.#spoke);
  }

  /** The live connection is live no more. @param {boolean} silent whether it ended in silence */
  #leaveLive(silent) {
    const conn = /** @type {Connection} */ (this._live);
    this._live = null;
    for (const timer of [this.#ackBy, this.#closeBy, this.#moveAt]) timer._clear();
    this.#silence._end(silent);
    conn._close();
    return conn;
  }

  /** An attempt is over, of which nobody knows what the gateway makes. @param {Connection} conn */
  #abandon(conn) {
    this.#abandoned = this.#hellos;
    this.#attempt = null;
    this.#patience._clear();
    conn._close();
  }

  // ---- upward

  /** Gives the live connection what it may have, and at the end the farewell. */
  #pump() {
    if (!this._live?._usable || this.#parked) return;
    for (let data; (data = this.#out._next(this._said.limits)) !== undefined; this.#silence._sent()) {
      if (this.#ackBy._late >= MS.ackAlong - MS.ack) this.#ack();
      this._live._send(escaped(data));
    }
    if (this.#farewell && this.#out._drained) this.#sayBye(this._live, this.#farewell);
  }

  /** @param {Connection} conn @param {Farewell} with */
  #sayBye(conn, { code, reason }) {
    conn._bye = code === 1005 && this._said.answer_ms === undefined ? 1000 : code;
    conn._say('bye', JSON.stringify({ code: conn._bye, reason }));
    this.#silence._sent();
    this.#closeBy._set(MS.farewell + 2 * this._said.heartbeat_ms);
  }

  /** @param {Connection} conn @param {number} n */
  #onAck(conn, n) {
    if (!this.#out._ack(n)) return this.#broken(conn);
    conn._useful = true;
    this.#onAnswered();
    this.#pump();
  }

  /** An ack or a pong came, or the last part of a message. */
  #onAnswered() {
    if (!this.#out._owed && !this._live?._parts) this.#silence._acked();
  }

  /** A Blob could not be read: its place can be filled by nothing, so the session ends. */
  #onUnreadable() {
    if (this.#state === State.ENDED) return;
    if (this._live) this.#sayBye(this._live, { code: 1001, reason: 'unreadable Blob' });
    this.#farewell = null;
    this.#finish();
  }

  /**
   * Acks what came, if that is news. While a resume is under way that stated N, an older
   * connection acks nothing beyond it (protocol section 5).
   */
  #ack() {
    if (this._live?._usable && this._live._ack(this.#attempt?._stated ?? Infinity)) this.#ackBy._clear();
  }

  // ---- silence

  /** Something came on the live connection. */
  _heard() {
    if (this.#state === State.SUSPECTED) this.#falseAlarm();
    this.#silence._heard();
  }

  /** Whether the live connection may be suspected. */
  get _suspicious() {
    return this.#state === State.ATTACHED && !this.#farewell;
  }

  /** The gateway should have been heard by now. */
  _overdue() {
    this.#standIns._beat();
  }

  /** Whether a heartbeat must stand in for the game's. @param {boolean} late */
  #needsStandIn(late) {
    return this._readyState === ReadyState.OPEN && (this.#state !== State.ATTACHED || late || this.#silence._overdue);
  }

  /** By how much the alarm that should have rung first is late; negative: none is. */
  #lateness() {
    return Math.max(...this.#timers.map((timer) => timer._late));
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

  /** Page or machine slept: what is known of the network is old. */
  #wake() {
    for (const timer of this.#timers) timer._forgive();
    const slept = this.#attempt;
    if (this._live) this.#silence._wake();
    if (this._live || !this.#seeking) return;
    if (slept && slept === this.#attempt) this.#abandon(slept);
    this.#owing = true;
    this.#tryAgain();
  }

  // ---- the way back

  /** How long there may be a way back after a loss: the gateway notices later than this side. */
  get #keep() {
    return this._said.grace_ms + 2 * this._said.heartbeat_ms;
  }

  /**
   * How long to look for a way back. The gateway decides how long the session is kept, and may do
   * so while nobody can tell this side: protocol section 10.
   */
  get #bound() {
    return Math.max(this.#keep, this.#plan._giveUpAfter);
  }

  /** How long it is until the time to come back that the gateway has named. */
  get #heldBack() {
    return this.#told && this.#pace._armed ? Math.max(-this.#pace._late, 0) : 0;
  }

  /**
   * The live connection is lost, or given up. Where it was suspected, detach has fired already, and an
   * attempt under way goes on as the resume.
   * @param {string} why
   * @param {number} after what the gateway asked for, or 0
   * @param {boolean} silent whether it ended in silence
   */
  _lose(why, after = 0, silent = false) {
    if (!this._live) return;
    const conn = this.#leaveLive(silent);
    const known = this.#state === State.SUSPECTED;
    if (known && !this.#spoke) this.#pacer._suspected(false);
    this.#dropped = this.#runtime.now();
    const held = why !== 'broken' && this.#dropped - conn._since >= MS.settled;
    if (this.#pacer._lost(this.#dropped, conn._useful || held, conn._awaited)) return this.#finish();
    this.#owing = true;
    this.#enter(State.DETACHED, why);
    this.#giveUp._set(this.#farewell ? this._said.grace_ms : this.#bound);
    this.#hung = known || silent || why === 'no answer';
    if (known) return this.#comeBack(Math.max(after, this.#heldBack));
    this.#tries = 0;
    this.#failed(after);
  }

  /**
   * The live connection was lively, is silent, and answers no ping. It stays in use both ways
   * until a resume beside it has its hello.
   */
  _suspect() {
    this.#spoke = false;
    this.#hung = true;
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
    if (this.#attempt?._opened) return;
    if (this.#attempt) this.#abandon(this.#attempt);
    this.#stopProbe();
    this.#pacer._suspected(true);
    this.#pace._clear();
    this.#enter(State.ATTACHED, 'false alarm');
    this.#resumed({ replay: 0, lost: 0 }, this.#silence._since);
  }

  /** @param {{ replay: number, lost: number, moved?: string }} hello @param {number} ms @param {boolean} [reloaded] */
  #resumed({ replay, lost, moved }, ms, reloaded) {
    this.#host._notice('resume', { replay, lost, ms, reloaded, moved });
    if (replay === 0) this.#host._notice('replayed');
  }

  /** The connection is lost, or an attempt has failed. @param {number} after what the gateway asked for, or 0 */
  #failed(after) {
    this.#tries++;
    if (this.#state !== State.RELOADED) {
      this.#host._notice('detach', { attempt: this.#tries, since: this.#silence._heardWall });
      if (this.#tries === 1) this.#standIns._beat(); // the library has waited for some time already
    }
    this.#comeBack(after);
  }

  /** Sees to the next attempt. @param {number} after what the gateway asked for, or 0 */
  #comeBack(after) {
    if (this.#attempt || !this.#seeking) return;
    const t = this.#runtime.now();
    const pause = Math.max(after, this.#pacer._pause(t, this.#state === State.SUSPECTED, this.#overtime));
    this.#told = after > 0;
    if (this.#told && !this._live) {
      this.#owing = true;
      this.#over = false;
      if (-this.#giveUp._late < pause || !this.#giveUp._armed) this.#giveUp._set(pause + 1);
    }
    if (pause === 0 && this.#tries === 1) this.#tryAgain();
    else this.#pace._set(pause);
  }

  #tryAgain() {
    if (this.#attempt || !this.#seeking) return;
    // The browser may be wrong (it does not know of loopback): believed for a while only.
    if (this.#runtime.navigator?.onLine === false && !this.#waited && !this.#over) {
      this.#waited = true;
      return this.#pace._set(MS.offline);
    }
    // What was lost in silence, or an attempt that failed: the next one may fail too.
    if (this.#reach?._isAllowed && (this.#hung || this.#tries > 1)) this.#probe(this.#reach);
    else this.#resume();
  }

  /** How far an outage is beyond the time that the gateway named: attempts become rarer. */
  get #overtime() {
    return this._live ? 0 : Math.max(0, this.#runtime.now() - this.#dropped - this.#keep);
  }

  /** @param {Reach} reach */
  #probe(reach) {
    this.#pace._clear();
    this.#probedAt = this.#runtime.now();
    this.#patience._set(this.#limit(MS.reach));
    if (this._said.probe) reach._ask(this.#url, (answer) => this.#onProbed(answer));
    else this.#onProbed(FORBIDDEN); // a gateway of before does not answer
  }

  #stopProbe() {
    this.#reach?._stop();
    this.#patience._clear();
  }

  /** @param {number} answer */
  #onProbed(answer) {
    this.#stopProbe();
    const now = this.#runtime.now();
    const backed = answer === GATEWAY || answer === FORBIDDEN;
    if (backed || (answer !== NOBODY && now >= this.#mayTryAt)) {
      // It may fail, and the engine delays the next ones then.
      if (!backed) this.#mayTryAt = now + (this.#gap = 3 * this.#gap || MS.reachEvery);
      return this.#resume();
    }
    this.#owing = false;
    if (this.#over) return this.#noWayBack();
    const pause = MS.reachEvery * (1 + this.#runtime.random() / 2) + this.#overtime / 16;
    this.#pace._set(Math.max(MS.breath, this.#probedAt + pause - now));
  }

  /** How long an attempt, or a probe, may take. @param {number} [least] */
  #limit(least = MS.connect) {
    return this.#pacer._limit(this.#silence._rtt, least);
  }

  /**
   * One attempt at a resume. It runs beside a live connection for a move, or where that one is suspected.
   */
  #resume() {
    this.#pace._clear();
    this.#stopProbe();
    this.#waited = this.#told = false;
    this.#pacer._begin(this.#runtime.now());
    this.#patience._set(MS.connectMax); // to know the address
    try {
      this.#connect();
    } catch {
      return this.#attemptFailed(0);
    }
    if (this.#attempt) this.#attempt._owing = this.#owing;
    this.#owing = false;
  }

  /**
   * An attempt came to nothing, and nobody knows what the gateway makes of it.
   * @param {Connection} conn
   * @param {boolean} plain whether it speaks of a server without Reseat
   */
  #attemptLost(conn, plain = !conn._opened) {
    this.#abandon(conn);
    if (this.#state !== State.CONNECTING) return this.#attemptFailed(0);
    if (!plain || conn._bare || !this.#mayFallBack()) return this.#finish();
    try {
      this.#connect(true);
    } catch {
      this.#finish();
    }
  }

  /** @param {number} after what the gateway asked for, or 0 */
  #attemptFailed(after) {
    this.#attempt = null;
    this.#patience._clear();
    this.#ack(); // what was held back for its sake
    if (this.#state === State.ATTACHED) return this.#planMove(Math.max(1000, after));
    if (this._live && this.#spoke) return this.#falseAlarm();
    if (this.#over && !after) return this.#noWayBack();
    this.#failed(after);
  }

  /** An attempt takes too long. @param {boolean} late */
  #onPatience(late) {
    if (!this.#attempt) return this.#onProbed(NOBODY);
    const first = this.#state === State.CONNECTING;
    if (!late || (!first && this._live)) this.#attemptLost(this.#attempt, true);
    else if (first) this.#patience._set(MS.firstHello); // its hello may have come while the page slept
    // Otherwise waking has begun another.
  }

  /** The time is over. An attempt that was answered, or that is owed, is waited for. */
  #onGiveUp() {
    if (this.#farewell) return this.#finish();
    if (this.#attempt && !this.#attempt._opened && !this.#attempt._owing) this.#abandon(this.#attempt);
    this.#over = true;
    if (this.#attempt) return;
    if (this.#owing) return this.#tryAgain();
    this.#noWayBack();
  }

  /** No connection could be had in time, or this session is refused for good. */
  #noWayBack() {
    if (this.#state === State.RELOADED) this.#giveWay(this.#host._anew);
    else this.#finish();
  }

  /** At a random moment of the time that is left for a move. @param {number} after the least pause before */
  #planMove(after) {
    const left = this.#moveBy - this.#runtime.now() - after;
    if (left >= 0) this.#moveAt._set(after + this.#runtime.random() * left);
  }

  #move() {
    if (this._live?._usable && !this.#attempt) this.#resume();
  }

  // ---- ends

  /**
   * `end` or `close` on a live connection: the Close frame follows.
   * @param {Connection} conn
   * @param {Verdict} verdict
   */
  #onVerdict(conn, verdict) {
    conn._verdict = verdict;
    if (verdict.retry) this.#onCloseBy();
    else this.#closeBy._set(MS.closing);
  }

  /** @param {Connection} conn @param {Verdict} verdict */
  #onCloseVerb(conn, verdict) {
    verdict.retry ||= this.#isMine(conn, verdict);
    return conn._hello ? this.#onVerdict(conn, verdict) : this.#onRefusal(conn, verdict);
  }

  /** The Close frame did not come, or need not be waited for. */
  #onCloseBy() {
    const verdict = this._live?._verdict;
    if (verdict?.retry === false) return this.#finishBy(verdict);
    this._lose('closed', verdict?.retry_after_ms);
  }

  /**
   * `close` in answer to an attempt. With retry false it speaks of the token and the count
   * that were stated, and only of them. Only where it was a new session's is it said why: a
   * session that was made ahead is one like all others.
   * @param {Connection} conn
   * @param {Verdict} verdict
   */
  #onRefusal(conn, verdict) {
    const { retry, retry_after_ms: after } = verdict;
    conn._close();
    if (!conn._token) {
      this.#foundGateway();
      return this.#finish({ ...verdict, wasClean: false });
    }
    const stale = conn._token !== this._said.token || conn._stated !== this.#received;
    if (this.#state === State.CONNECTING && retry) return this.#finish();
    if (this.#state !== State.CONNECTING && (retry || stale)) return this.#attemptFailed(after);
    if (this.#state === State.RELOADED) return this.#noWayBack();
    if (!this._live) return this.#finishBy(verdict);
    this.#moveBy = 0; // the older connection goes on
    this.#attemptFailed(0);
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
    return code === 4409 && ((this.#attempt && this.#attempt !== conn) || this.#abandoned >= this.#hellos - 1);
  }

  /** @param {Verdict} verdict */
  #finishBy(verdict) {
    this.#finish(clean(verdict), verdict._final);
  }

  /**
   * Ends the session, for any reason. An application that closed it gets its own code, unless
   * the game server closed before it heard of that.
   * @param {CloseDetail} ending
   * @param {boolean} [final] whether the game server closed
   */
  #finish(ending = NO_WAY_BACK, final = false) {
    if (this.#state === State.ENDED) return;
    const ends = this.#farewell && !final ? clean(this.#farewell) : ending;
    this.#stop(`${ends.code}`);
    this.#host._closed(ends);
  }

  /** Lets another take this session's place. @param {() => void} begin throws where that cannot open a connection */
  #giveWay(begin) {
    this.#stop('gives way');
    try {
      begin();
    } catch {
      this.#host._closed(NO_WAY_BACK);
    }
  }

  /** @param {string} why */
  #stop(why) {
    this.#clearTimers();
    this.#watching.abort();
    this.#enter(State.ENDED, why);
    const open = [this._live, this.#attempt];
    this._live = this.#attempt = null;
    for (const conn of open) conn?._close();
    this.#out._drop();
  }

  #clearTimers() {
    for (const timer of this.#timers) timer._clear();
  }

  // ---- page life and reloads

  /**
   * All that the page's life means to the session. Coming back, in whatever way, is a
   * reason to ask whether the connection still lives and to try again at once.
   * @param {any} event
   */
  #onPage({ type, persisted }) {
    if (this.#parked) return type === 'pageshow' ? this.#unpark() : undefined;
    if (type === 'beforeunload') {
      this.#leftAt = this.#runtime.now();
      if (!this.#records && this._live?._usable) this._live._say('leaving', '');
      return undefined;
    }
    if (type === 'pagehide' && (!persisted || this.#records)) {
      this.#ack();
      if (!persisted || this.#park()) return this.#leave();
    }
    const hidden = type === 'visibilitychange' && this.#runtime.document?.visibilityState === 'hidden';
    if (type === 'pagehide' || type === 'freeze' || hidden) return this.#ack(); // timers may be late from here on
    if (this.#lateness() > MS.slept) return this.#wake();
    if (this.#state === State.ATTACHED) return this.#silence._ask();
    if (this._live || this.#attempt || this.#heldBack) return undefined;
    return this.#tryAgain();
  }

  /** The page is left: the session is kept for the next page, or no ghost is to stay in the game. */
  #leave() {
    if (this.#park() || (this.#state !== State.ATTACHED && !this._detached)) return;
    if (this.#parked) this.#takeBack();
    this.#farewell ??= { code: 1001, reason: '' };
    this.#pump();
    if (this._live && !this._live._bye) this.#sayBye(this._live, this.#farewell);
  }

  /** Writes the record from which another page of this tab goes on. Returns false where it cannot. */
  #park() {
    if (!this.#records || this.#farewell || (this.#state !== State.ATTACHED && !this.#seeking)) return false;
    const kept = this.#out._save();
    const record = {
      id: this._said.session,
      born: this.#born,
      saved: this.#runtime.wall(),
      keep: this.#keep,
      said: this._said,
      received: this.#received,
      heard: this.#silence._heardWall,
      out: kept,
    };
    if (!kept || !this.#records._put(record)) return false;
    this.#parked = true;
    this.#clearTimers();
    return true;
  }

  /** Goes on from the record of the page before, if there is one that makes sense. @param {SavedSession | undefined} saved */
  #restore(saved) {
    if (!saved || !isToken(saved.said?.token)) return false;
    try {
      this.#out = Outbox._restore(saved.out);
    } catch {
      return false;
    }
    this._said = saved.said;
    this.#received = saved.received;
    this.#born = saved.born;
    this.#silence._restore(saved.heard);
    this.#owing = true;
    this.#enter(State.RELOADED, 'record');
    this.#giveUp._set(saved.saved + saved.keep - this.#runtime.wall());
    this.#tries = 1;
    return true;
  }

  /** Takes the record out again. Returns false where another page has. */
  #takeBack() {
    this.#parked = false;
    return this.#records?._takeBack(this._said.session);
  }

  /** The page is shown again: the session is its own again, unless another page took it. */
  #unpark() {
    if (!this.#takeBack()) return this.#finish();
    if (this._live) return this._lose('parked');
    if (this.#attempt) this.#abandon(this.#attempt);
    this.#owing = true;
    this.#giveUp._set(this.#bound);
    return this.#tryAgain();
  }
}
