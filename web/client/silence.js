import { Liveness } from './liveness.js';

/** @typedef {import('./types.js').ReseatRuntime} ReseatRuntime */
/** @typedef {import('./connection.js').Connection} Connection */

/**
 * The part of a Session that its Silence needs.
 * @typedef {object} SilenceHost
 * @property {Connection | null} _live
 * @property {import('./wire.js').Terms} _said
 * @property {boolean} _suspicious whether the connection may be suspected
 * @property {() => void} _heard a sign of life: the peer went on taking bytes
 * @property {() => void} _suspect it was lively, is silent, and answers no ping
 * @property {(why: string, after?: number, silent?: boolean) => void} _lose gives it up; `silent`: not for a pause of the page's own
 * @property {() => void} _overdue something should have come by now, but the time is not over
 */

/**
 * Watches over the live connection: when it was last heard, which pings are out, and what is
 * to be done about its silence. What follows from that is the session's to do.
 */
export class Silence {
  #runtime;
  #session;
  #liveness = new Liveness();
  #silence; // nothing was heard for long enough to do something about it
  #probe; // no answer to a ping
  #heard = 0; // the last sign of life, by the clock that is never set
  _heardWall = 0; // the same, by the wall
  #probed = 0; // the ping whose answer the probe waits for

  /**
   * @param {ReseatRuntime} runtime
   * @param {(ring: (late: boolean) => void, retries?: number) => import('./alarm.js').Alarm} alarm
   * @param {SilenceHost} session
   */
  constructor(runtime, alarm, session) {
    this.#runtime = runtime;
    this.#session = session;
    this.#silence = alarm(() => this.#onSilence(), 2);
    this.#probe = alarm((late) => late || session._lose('no answer'), 2); // after a sleep it has been asked again
  }

  get _rtt() {
    return this.#liveness._rtt;
  }

  /** A connection took so long to its 101. @param {number} ms */
  _opened(ms) {
    this.#liveness._opened(ms);
  }

  /** Milliseconds since the last sign of life, those that the machine slept included. */
  get _since() {
    return Math.max(this.#runtime.now() - this.#heard, this.#runtime.wall() - this._heardWall);
  }

  /**
   * Whether the gateway should have been heard by now, and has had half its time to answer. A
   * library that was last served before this silence may not wait until it is over.
   */
  get _overdue() {
    const { heartbeat_ms: heartbeat, answer_ms: answer = 0 } = this.#session._said;
    return heartbeat > 0 && answer > 0 && this._since >= heartbeat + answer / 2;
  }

  /** The last sign of life of the page before. @param {number} t by the wall */
  _restore(t) {
    this.#heard = this.#runtime.now() - (this.#runtime.wall() - t);
    this._heardWall = t;
  }

  /** A sign of life, for the times in detach and resume. */
  _sign() {
    this.#heard = this.#runtime.now();
    this._heardWall = this.#runtime.wall();
  }

  /** A connection has its hello. */
  _begin() {
    this._sign();
    this.#liveness._begin(this.#heard);
  }

  /** The live connection is live no more. @param {boolean} silent whether it ended in silence */
  _end(silent) {
    this.#silence._clear();
    this.#probe._clear();
    this.#liveness._end(silent);
  }

  /** The page or the machine slept: what was heard before says nothing. */
  _wake() {
    if (this._since >= this.#liveness._limit(this.#session._said)) return this.#session._lose('silence');
    this.#liveness._reset(this.#runtime.now());
    this.#probe._clear(); // an answer may have been slept through
    this._ask();
  }

  /**
   * A message is read.
   * @param {boolean} paused whether the page was blocked until now
   * @param {boolean} live whether it is the live connection's
   */
  _read(paused, live) {
    this.#liveness._paused = paused;
    if (live && this.#probe._armed) this.#probe._set(this.#liveness._patience); // the answer is behind it, if any comes
  }

  /** Something came. */
  _heard() {
    this._sign();
    this.#liveness._heard(this.#heard);
  }

  /** A data message came. @param {boolean} fresh whether it had not come before */
  _received(fresh) {
    this.#liveness._received(this.#heard, fresh);
  }

  /** Part of a large message came, or its announcement. */
  _queued() {
    this.#liveness._queued(this.#heard);
  }

  /** Something was sent that the gateway has to answer. */
  _sent() {
    this.#liveness._sent(this.#runtime.now());
    this._rearm();
  }

  /** All data that was sent is acked. */
  _acked() {
    this.#liveness._acked();
  }

  /** @param {number} n */
  _pong(n) {
    this.#liveness._pong(this.#heard, n);
    if (n >= this.#probed) this.#probe._clear();
  }

  /**
   * Asks for an answer, soon. Only the answer to this very ping will do, or to a later one:
   * whatever else comes now may have waited on this side since before the page slept.
   */
  _ask() {
    if (!this.#session._live || this.#probe._armed) return;
    this.#probed = this.#ping(false);
    this.#probe._set(this.#liveness._patience);
    this._rearm();
  }

  /**
   * Sets the alarm of silence where it would ring too late. Ringing too early is harmless, so
   * messages hardly ever cost a timer.
   */
  _rearm() {
    const conn = this.#session._live;
    if (!conn || conn._verdict) return;
    const left = this.#next().at - this.#runtime.now();
    if (left < -this.#silence._late) this.#silence._set(left);
  }

  /** Does what Liveness says is due. */
  #onSilence() {
    const conn = this.#session._live;
    if (!conn || conn._verdict) return;
    if (conn._drains()) this.#session._heard();
    const { at, what } = this.#next();
    if (at <= this.#runtime.now()) {
      if (what === 'dead') return this.#session._lose('silence', 0, true);
      if (what === 'suspect') {
        this.#liveness._suspected();
        this.#session._suspect();
      } else this.#ping(what === 'check');
      if (this._overdue) this.#session._overdue();
    }
    this._rearm();
  }

  #next() {
    return this.#liveness._next(this.#session._said, this.#session._suspicious);
  }

  /** @param {boolean} check whether it is sent out of suspicion */
  #ping(check) {
    const n = this.#liveness._ping(this.#runtime.now(), check);
    this.#session._live?._say('ping', n);
    return n;
  }
}
