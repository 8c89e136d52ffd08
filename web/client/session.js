import { Alarm } from './alarm.js';
import { Attempts } from './attempts.js';
import { Delivery } from './delivery.js';
import { CONNECTION_LOST, Ending } from './ending.js';
import { Heartbeats } from './keepalive.js';
import { Liveness } from './liveness.js';
import { PageLife } from './pagelife.js';
import * as ReadyState from './readystate.js';
import { Recovery } from './recovery.js';
import * as State from './state.js';
import * as MS from './times.js';
import { DLE, isToken, readControl } from './wire.js';

/** @typedef {import('./types.js').Plan} Plan */
/** @typedef {import('./types.js').Host} Host */
/** @typedef {import('./types.js').CloseDetail} CloseDetail */
/** @typedef {import('./types.js').Message} Message */
/** @typedef {import('./connection.js').Connection} Connection */
/** @typedef {import('./wire.js').Terms} Terms */

/**
 * A Session outlives its connections. It has at most two: the live one, which has had its hello,
 * and an attempt, which has not. Events of any other connection are ignored.
 *
 * The session owns its state and the live connection, and dispatches what comes. Each part owns
 * the rest of one subject: Attempts the attempt, Delivery counts and messages, Liveness silence,
 * Recovery outages, Ending the close, PageLife the page, Heartbeats a library's watchdog.
 */
export class Session {
  /** @type {number} */
  _state = State.CONNECTING;
  /** The connection that has had its hello. @type {Connection | null} */
  _live = null;
  /** The newest hello, updated by `token` and `grace`. @type {Terms} */
  _terms;
  /** @type {Alarm[]} */
  #alarms = [];
  #upstream = 'back'; // the state of the game server
  #end = new AbortController(); // aborted at the end

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
    const { signal } = this.#end;
    this._plan = plan;
    this._host = host;
    this._runtime = plan._runtime;
    this._terms = { session: '', token: plan._token, grace_ms: 0, heartbeat_ms: 0 };
    this._delivery = new Delivery(this);
    this._liveness = new Liveness(this);
    this._heartbeats = new Heartbeats(this);
    this._attempts = new Attempts(this);
    this._recovery = new Recovery(this, signal);
    this._ending = new Ending(this);
    this._page = new PageLife(this, signal);
    if (plan._store)
      this._attempts._address(
        ({ url }) => this.#begin(url, restores),
        () => this._finish(),
      );
    else this._attempts._connect();
  }

  /** Begins at a URL for which there may be a record. @param {string} url @param {boolean} restores */
  #begin(url, restores) {
    if (this._state !== State.CONNECTING) return;
    this._page._open(url);
    if (!restores || !this.#restore()) this._attempts._connect();
  }

  /** Goes on from the record of the page before. Returns false if there is none, or it makes no sense. */
  #restore() {
    const saved = this._page._load();
    if (!saved || !isToken(saved.said?.token)) return false;
    try {
      this._delivery._restore(saved);
    } catch {
      return false;
    }
    this._terms = saved.said;
    this._liveness._restore(saved.heard);
    this._enter(State.RELOADED);
    this._recovery._restore(saved.saved + saved.keep - this._runtime.wall());
    return true;
  }

  // ---- the application's side

  /** @returns {0 | 1 | 2} CLOSED comes with the event */
  get _readyState() {
    if (this._state < State.ATTACHED) return ReadyState.CONNECTING;
    const closing =
      this._state === State.ENDED ||
      this._ending._request ||
      this._page._closing ||
      this._live?._verdict?.retry === false;
    return closing ? ReadyState.CLOSING : ReadyState.OPEN;
  }

  get _id() {
    return this._terms.session || null;
  }

  get _detached() {
    return this._state === State.DETACHED || this._state === State.SUSPECTED;
  }

  get _bufferedAmount() {
    return this._delivery._bufferedAmount;
  }

  /** @param {Message} data @param {number} bytes */
  _send(data, bytes) {
    this._delivery._count(bytes);
    if (this._heartbeats._takes(data)) return;
    this._delivery._send(data, bytes);
    if (this._page._suspended) this._page._leave(); // with this message, too
  }

  /** @param {number | undefined} code @param {string} reason */
  _close(code, reason) {
    this._ending._close(code, reason);
  }

  // ---- state

  /** @param {number} next */
  _enter(next) {
    this._state = next;
    this._runtime.trace(next);
  }

  /** Whether an attempt to resume should begin. A connection that it still has is suspected. */
  get _seeks() {
    return !this._attempts._current && (this._detached || this._state === State.RELOADED);
  }

  /** The live connection, if anything may be sent on it. */
  get _usable() {
    return this._live?._usable && !this._page._suspended ? this._live : null;
  }

  /**
   * Adds an alarm, which rings until the end of the session.
   * @param {(late: boolean) => void} ring late: the page or the machine slept, which has been handled
   * @param {number} [retries]
   */
  _alarm(ring, retries = 0) {
    const rings = (/** @type {boolean} */ late) => {
      if (late) this._wake();
      if (this._state !== State.ENDED) ring(late);
    };
    const alarm = new Alarm(this._runtime, rings, retries);
    this.#alarms.push(alarm);
    return alarm;
  }

  /** By how much the alarm that should have rung first is late; negative if none is. */
  get _lateness() {
    return Math.max(...this.#alarms.map((alarm) => alarm._late));
  }

  _clearAlarms() {
    for (const alarm of this.#alarms) alarm._clear();
  }

  /** Page or machine slept: what is known about the network is outdated. */
  _wake() {
    const attempts = this._attempts;
    const before = attempts._current;
    for (const alarm of this.#alarms) alarm._forgive();
    if (this._live) this._liveness._wake();
    if (this._live || (!this._detached && this._state !== State.RELOADED)) return;
    if (before && before === attempts._current) attempts._abandon(before);
    this._recovery._restart();
  }

  // ---- connections

  /** @param {Connection} conn @param {any} data */
  _onMessage(conn, data) {
    if (this._page._suspended) return; // the record is written: the message comes again
    const late = this._lateness;
    this._liveness._read(late > MS.paused, conn === this._live);
    if (conn._verdict) return;
    const whole = conn._parts && typeof data !== 'string' ? this._delivery._onPart(conn, data) : data;
    if (whole !== undefined) this.#onWhole(conn, whole);
    if (conn === this._live) this._liveness._rearm();
    if (late > MS.slept) this._wake();
  }

  /** @param {Connection} conn @param {any} data */
  #onWhole(conn, data) {
    if (data[0] !== DLE) this.#onData(conn, data);
    else if (data[1] === DLE) this.#onData(conn, data.slice(1));
    else this.#onControl(conn, data.slice(1));
  }

  /** @param {Connection} conn @param {any} data */
  #onData(conn, data) {
    if (!conn._hello) return this._attempts._fail(conn, true);
    this._heard();
    this._delivery._onData(conn, data);
  }

  /** @param {Connection} conn @param {string} text */
  #onControl(conn, text) {
    const first = this._state === State.CONNECTING;
    let verb, argument;
    try {
      [verb, argument] = readControl(text);
    } catch {
      return first && !text.startsWith('hello') ? this._attempts._fail(conn, true) : this._broken(conn);
    }
    if (!conn._hello && verb !== 'hello' && verb !== 'close') {
      if (first || argument !== undefined) this._attempts._fail(conn, true);
      return;
    }
    // Protocol section 5: a 4409 is no sign of life, since a resume of this session may have caused it.
    if (conn === this._live && (verb !== 'close' || argument.code !== 4409)) this._heard();
    switch (verb) {
      case 'hello':
        return this.#onHello(conn, argument);
      case 'ack':
        return this._delivery._onAck(conn, argument);
      case 'parts':
        return this._delivery._onParts(conn, argument);
      case 'part':
        return this._delivery._onPartAnswer(conn, argument);
      case 'skip':
        return this._delivery._onSkip(conn, argument);
      case 'pong':
        this._liveness._pong(Number(argument));
        return this._delivery._onAnswered();
      case 'token':
        this._terms.token = argument;
        return;
      case 'grace':
        this._terms.grace_ms = argument;
        return;
      case 'ping':
        this._delivery._answer();
        return conn._say('pong', argument);
      case 'move':
        return this._recovery._onMove(argument);
      case 'upstream':
        // A resume may repeat what is known.
        if (argument !== this.#upstream) this._host._notice(verb, { state: (this.#upstream = argument) });
        return;
      case 'end':
        return this._ending._onVerdict(conn, { ...argument, retry: false, _final: true });
      case 'close':
        return this._ending._onClose(conn, argument);
      // Others: reseat.v1 may grow.
    }
  }

  /** @param {Connection} conn @param {import('./wire.js').Hello} hello */
  #onHello(conn, hello) {
    const foreign = this._terms.session && hello.session !== this._terms.session;
    if (conn._hello || foreign || !this._delivery._admits(conn, hello)) return this._broken(conn);
    const before = this._state;
    const ms = this._liveness._since;
    this._recovery._replaced(); // protocol section 8: nothing more is taken from the older connection
    this._live = conn;
    this._attempts._succeed(conn);
    this._recovery._end();
    conn._since = this._runtime.now();
    this._delivery._begin(conn, hello);
    this._terms = hello;
    this._enter(State.ATTACHED);
    this._liveness._begin();
    this._delivery._ack();
    this._delivery._sent._rewind(hello.received);
    this._delivery._pump();
    this._liveness._rearm();
    if (before >= State.ATTACHED) return this._resumed(hello, ms);
    this._reloaded = before === State.RELOADED;
    this._protocol = `${hello.protocol ?? ''}`;
    this._attempts._foundGateway();
    // As a browser fails a handshake whose server chooses no subprotocol of those offered (WebSockets
    // Standard, "establish a WebSocket connection"). A pre-created session has what its creator asked for.
    if (!conn._token && (conn._protocols.length > 0 ? !conn._protocols.includes(this._protocol) : this._protocol)) {
      this._ending._sayBye(conn, { code: 1001, reason: '' });
      return this._finish();
    }
    this._heartbeats._beat();
    this._host._opened();
    if (this._reloaded) this._resumed(hello, ms, true);
  }

  /** @param {{ replay: number, lost: number, skipped: number, moved?: string }} hello @param {number} ms @param {boolean} [reloaded] */
  _resumed({ replay, lost, skipped, moved }, ms, reloaded) {
    this._host._notice('resume', { replay, lost, skipped, ms, reloaded, moved });
    if (replay + skipped === 0) this._host._notice('replayed');
  }

  /** Something came on the live connection. */
  _heard() {
    if (this._state === State.SUSPECTED) this._recovery._onFalseAlarm();
    this._liveness._heard();
  }

  /** @param {Connection} conn @param {any} event */
  _onClose(conn, event) {
    if (this._page._suspended) return;
    if (conn === this._attempts._current) return this._attempts._fail(conn);
    if (event.wasClean) this._liveness._sign(); // a Close frame came
    if (conn._verdict?.retry === false) return this._ending._finish(conn._verdict);
    if (conn._bye && event.code === conn._bye) return this._finish();
    this._recovery._disconnected(this._page._leavingFor);
  }

  /** The gateway sent what it must not send: the connection is closed. @param {Connection} conn */
  _broken(conn) {
    if (conn === this._attempts._current) return this._attempts._fail(conn);
    conn._broken = true;
    this._recovery._disconnected(0);
  }

  /** Closes the live connection, and returns it. @param {boolean} silent whether it ended in silence */
  _detach(silent) {
    const conn = this._live;
    if (!conn) return null;
    this._live = null;
    const { _ackTimer: ack, _partTimer: part } = this._delivery;
    for (const timer of [ack, part, this._ending._closeTimer, this._recovery._moveTimer]) timer._clear();
    this._liveness._end(silent);
    conn._close();
    return conn;
  }

  // ---- the end

  /** @param {CloseDetail} ending @param {boolean} [final] whether the game server closed */
  _finish(ending = CONNECTION_LOST, final = false) {
    if (this._state === State.ENDED) return;
    const detail = this._ending._detail(ending, final);
    this.#stop();
    this._host._closed(detail);
  }

  /** Another connection or session takes the place of this session. @param {() => void} begin throws if it cannot connect */
  _replaceBy(begin) {
    this.#stop();
    try {
      begin();
    } catch {
      this._host._closed(CONNECTION_LOST);
    }
  }

  #stop() {
    const open = [this._live, this._attempts._current];
    this._clearAlarms();
    this.#end.abort();
    this._enter(State.ENDED);
    this._live = null;
    this._attempts._end();
    for (const conn of open) conn?._close();
    this._delivery._sent._drop();
  }
}
