import * as Answer from './answer.js';
import { Pacer } from './pacer.js';
import { Reach, isBrowser } from './reach.js';
import { isGecko } from './runtime.js';
import * as State from './state.js';
import * as MS from './times.js';

/** @typedef {import('./connection.js').Connection} Connection */
/** @typedef {import('./session.js').Session} Session */

/**
 * Reconnection: when the next attempt to resume begins, and when the session is given up. The
 * Pacer has the backoff, Reach the HTTP probes where the browser delays WebSockets.
 */
export class Recovery {
  #session;
  #runtime;
  #pacer;
  /** @type {Reach | null} */
  #reach = null;
  #retryTimer; // the next attempt
  #deadline; // no further attempt after this
  #probeTimer; // the answer to the probe
  _moveTimer; // the attempt for a move

  // The outage.
  #lostAt = 0; // when the live connection was given up
  #attempts = 0; // the number of the next one
  #silent = false; // the connection was lost in silence, or is suspected
  #falseAlarm = false; // the suspected connection is alive, and an attempt was answered already
  #mustTry = false; // an attempt is due even after the deadline
  #expired = false; // the deadline is over: the attempt in progress is the last
  #scheduled = false; // the gateway said when to come back
  #waitedOffline = false; // the pause of an offline browser is over

  // Probes.
  #probedAt = 0; // when the newest began
  #unprobedAt = 0; // when an attempt may begin that no probe supports
  #unprobedGap = 0; // between two of them

  #moveBy = 0; // the time until which the gateway wants the session moved

  /** @param {Session} session @param {AbortSignal} signal the end of the session */
  constructor(session, signal) {
    const runtime = session._runtime;
    this.#session = session;
    this.#runtime = runtime;
    this.#pacer = new Pacer(runtime.random);
    this.#retryTimer = session._alarm(() => this._tryAgain());
    this.#deadline = session._alarm(() => this.#onDeadline());
    this.#probeTimer = session._alarm(() => this.#onProbed(Answer.NO_ANSWER), 2);
    this._moveTimer = session._alarm(() => this.#move());
    if (isBrowser(runtime)) this.#reach = new Reach(runtime, signal);
  }

  // ---- spans of time

  /** How long the gateway may keep the session after a loss, which it notices later than this side. */
  get _keep() {
    const { grace_ms: grace, heartbeat_ms: heartbeat } = this.#session._terms;
    return grace + 2 * heartbeat;
  }

  /** How long to try. The gateway may keep the session for longer than it said: protocol section 10. */
  get #maxOutage() {
    return Math.max(this._keep, this.#session._plan._giveUpAfter);
  }

  /** How long the outage has lasted beyond the time that the gateway named: attempts become rarer. */
  get #overtime() {
    const session = this.#session;
    return session._live ? 0 : Math.max(0, this.#runtime.now() - this.#lostAt - this._keep);
  }

  /** How long it is until the time that the gateway named. */
  get _scheduledIn() {
    return this.#scheduled && this.#retryTimer._armed ? Math.max(-this.#retryTimer._late, 0) : 0;
  }

  /** How long an attempt may take until its 101. */
  get _attemptTimeout() {
    return (
      this.#session._liveness._limit(MS.connect) + (isGecko(this.#runtime.navigator) ? this.#pacer._firefoxDelay : 0)
    );
  }

  // ---- outages

  /**
   * The live connection is lost, or given up. If it was suspected, `detach` has fired already, and an
   * attempt in progress goes on as the resume.
   * @param {number} after what the gateway asked for, or 0
   * @param {boolean} silent whether it ended in silence
   * @param {boolean} unanswered whether nothing says that the network works
   */
  _disconnected(after, silent = false, unanswered = silent) {
    const session = this.#session;
    const suspected = session._state === State.SUSPECTED;
    const conn = session._detach(silent);
    if (!conn) return;
    if (suspected && !this.#falseAlarm) this.#pacer._suspected(false);
    this.#lostAt = this.#runtime.now();
    const good = !conn._broken && (conn._useful || this.#lostAt - conn._since >= MS.settled);
    if (this.#pacer._lost(this.#lostAt, good, conn._awaited)) return session._finish();
    this.#mustTry = true;
    session._enter(State.DETACHED);
    this.#deadline._set(session._ending._request ? session._terms.grace_ms : this.#maxOutage);
    this.#silent = suspected || unanswered;
    if (suspected) return this.#schedule(Math.max(after, this._scheduledIn));
    this.#attempts = 0;
    this.#failed(after);
  }

  /**
   * The live connection is silent, and answers no ping. It stays in use both ways until an
   * attempt beside it has its hello.
   */
  _suspect() {
    this.#falseAlarm = false;
    this.#silent = true;
    this.#attempts = 0;
    this.#session._enter(State.SUSPECTED);
    this.#failed(0);
  }

  /**
   * Something came on the suspected connection. An attempt without its 101 is abandoned. After
   * the 101 the attempt goes on, since the gateway may have superseded this connection.
   */
  _onFalseAlarm() {
    const session = this.#session;
    const { _attempts: attempts, _liveness: liveness } = session;
    this.#falseAlarm = true;
    if (attempts._current?._opened) return;
    if (attempts._current) attempts._abandon(attempts._current);
    this.#stopProbe();
    this.#pacer._suspected(true);
    this.#retryTimer._clear();
    session._enter(State.ATTACHED);
    session._resumed({ replay: 0, lost: 0 }, liveness._since);
  }

  /** Another connection replaces the live one. */
  _replaced() {
    const suspected = this.#session._state === State.SUSPECTED;
    if (this.#session._detach(suspected && !this.#falseAlarm) && suspected) this.#pacer._suspected(this.#falseAlarm);
  }

  /** The session has a live connection. */
  _end() {
    this.#unprobedGap = this.#unprobedAt = 0;
    this.#retryTimer._clear();
    this.#deadline._clear();
    this.#mustTry = this.#expired = this.#scheduled = this.#waitedOffline = false;
  }

  /** The page was reloaded: looks for the session of the page before. @param {number} ms how long */
  _restore(ms) {
    this.#mustTry = true;
    this.#deadline._set(ms);
    this.#attempts = 1;
    this.#schedule(0);
  }

  /** Page or machine slept, or the page is shown again: an attempt is due. */
  _restart(suspended = false) {
    this.#mustTry = true;
    if (suspended) this.#deadline._set(this.#maxOutage);
    this._tryAgain();
  }

  /** The application has closed the socket: its close is kept only for as long as the gateway said. */
  _shorten() {
    const session = this.#session;
    this.#deadline._set(Math.max(this.#lostAt + session._terms.grace_ms - this.#runtime.now(), 0));
  }

  // ---- attempts

  /** The connection is lost, or an attempt has failed. @param {number} after what the gateway asked for, or 0 */
  #failed(after) {
    const session = this.#session;
    this.#attempts++;
    if (session._state !== State.RELOADED) {
      session._host._notice('detach', { attempt: this.#attempts, since: session._liveness._heardWall });
      if (this.#attempts === 1) session._heartbeats._beat(); // the library has waited for some time already
    }
    this.#schedule(after);
  }

  /** Schedules the next attempt. @param {number} after what the gateway asked for, or 0 */
  #schedule(after) {
    const session = this.#session;
    if (!session._seeks) return;
    const beside = session._state === State.SUSPECTED;
    const pause = Math.max(after, this.#pacer._pause(this.#runtime.now(), beside, this.#overtime));
    this.#scheduled = after > 0;
    if (this.#scheduled && !session._live) {
      this.#mustTry = true;
      this.#expired = false;
      if (-this.#deadline._late < pause || !this.#deadline._armed) this.#deadline._set(pause + 1);
    }
    if (pause === 0 && this.#attempts === 1) this._tryAgain();
    else this.#retryTimer._set(pause);
  }

  _tryAgain() {
    if (!this.#session._seeks) return;
    // The browser may be wrong, since it ignores loopback: it is believed for a while only.
    if (this.#runtime.navigator?.onLine === false && !this.#waitedOffline && !this.#expired) {
      this.#waitedOffline = true;
      return this.#retryTimer._set(MS.offline);
    }
    // After silence, or an attempt that failed, the next one may fail too.
    if (this.#reach && !this.#reach._forbidden && (this.#silent || this.#attempts > 1)) this.#probe(this.#reach);
    else this.#resume();
  }

  /** One attempt to resume. It runs beside a live connection that is suspected, or that is moved. */
  #resume() {
    const attempts = this.#session._attempts;
    this.#retryTimer._clear();
    this.#stopProbe();
    this.#waitedOffline = this.#scheduled = false;
    this.#pacer._begin(this.#runtime.now());
    try {
      attempts._resume();
    } catch {
      return this._attemptFailed(0);
    }
    if (attempts._current) attempts._current._awaitedAfterDeadline = this.#mustTry;
    this.#mustTry = false;
  }

  /** @param {number} after what the gateway asked for, or 0 */
  _attemptFailed(after) {
    const session = this.#session;
    session._attempts._end();
    session._delivery._ack(); // what was held back because of the attempt
    if (session._state === State.ATTACHED) return this.#planMove(Math.max(1000, after));
    if (session._live && this.#falseAlarm) return this._onFalseAlarm();
    if (this.#expired && !after) return this._giveUp();
    this.#failed(after);
  }

  /** An attempt that has its 101, or is due even now, may still succeed. */
  #onDeadline() {
    const session = this.#session;
    const attempts = session._attempts;
    const conn = attempts._current;
    if (session._ending._request) return session._finish();
    if (conn && !conn._opened && !conn._awaitedAfterDeadline) attempts._abandon(conn);
    this.#expired = true;
    if (attempts._current) return;
    if (this.#mustTry) return this._tryAgain();
    this._giveUp();
  }

  /** No connection could be made in time, or this session is refused for good. */
  _giveUp() {
    const session = this.#session;
    if (session._state === State.RELOADED) session._replaceBy(session._host._anew);
    else session._finish();
  }

  // ---- probes

  /** @param {Reach} reach */
  #probe(reach) {
    const session = this.#session;
    this.#retryTimer._clear();
    this.#probedAt = this.#runtime.now();
    this.#probeTimer._set(this.#session._liveness._limit(MS.reach));
    if (session._terms.probe) reach._ask(session._attempts._url, (answer) => this.#onProbed(answer));
    else this.#onProbed(Answer.FORBIDDEN); // an older gateway does not answer
  }

  #stopProbe() {
    this.#reach?._stop();
    this.#probeTimer._clear();
  }

  /** @param {number} answer */
  #onProbed(answer) {
    const t = this.#runtime.now();
    const supported = answer === Answer.GATEWAY || answer === Answer.FORBIDDEN;
    this.#stopProbe();
    if (supported || (answer !== Answer.NO_ANSWER && t >= this.#unprobedAt)) {
      // An attempt that no probe supports may fail, and then the browser delays the next ones.
      if (!supported) this.#unprobedAt = t + (this.#unprobedGap = 3 * this.#unprobedGap || MS.reachEvery);
      return this.#resume();
    }
    this.#mustTry = false;
    if (this.#expired) return this._giveUp();
    const pause = MS.reachEvery * (1 + this.#runtime.random() / 2) + this.#overtime / 16;
    this.#retryTimer._set(Math.max(MS.minGap, this.#probedAt + pause - t));
  }

  // ---- moves

  /** The gateway wants the session moved to another connection. @param {number} ms within this time */
  _onMove(ms) {
    this.#moveBy = this.#runtime.now() + ms;
    this.#planMove(0);
  }

  /** At a random moment of the time that is left for a move. @param {number} after the least pause before */
  #planMove(after) {
    const left = this.#moveBy - this.#runtime.now() - after;
    if (left >= 0) this._moveTimer._set(after + this.#runtime.random() * left);
  }

  #move() {
    const session = this.#session;
    if (session._live?._usable && !session._attempts._current) this.#resume();
  }

  /** The attempt for a move is refused: the older connection goes on. */
  _moveRefused() {
    this.#moveBy = 0;
    this._attemptFailed(0);
  }
}
