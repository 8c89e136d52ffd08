import * as State from './state.js';
import * as MS from './times.js';

/** @typedef {import('./session.js').Session} Session */

// What is due after silence.
const DEAD = 0; // to give the connection up
const PING = 1;
const CHECK = 2;
const SUSPECT = 3;

/**
 * Whether the live connection is alive: the answer rule and suspicion of protocol section 5. It
 * measures round trips and the gaps between messages, sends pings, and tells the session when
 * to suspect the connection and when to give it up.
 */
export class Liveness {
  #session;
  #runtime;
  #silenceTimer; // something is due if nothing is heard until then
  #answerTimer; // for the answer to a ping that was sent by _ask
  #asked = 0; // the number of that ping

  #heardAt = 0; // when anything was last heard, by the monotonic clock
  _heardWall = 0; // the same, by the wall clock

  // Measured over all connections of the session.
  _rtt = 0; // smoothed as in RFC 6298; 0: unknown
  #handshake = MS.beside; // the fastest until its 101, at most this: at least two round trips
  #newestHandshake = 0;
  #slowest = 0; // the longest handshake
  #silences = 0; // connections in a row that ended in silence, 3 at most
  #gaps = [0, 0]; // the longest and the second longest gap between data messages since #gapsSince
  #olderGaps = [0, 0]; // the same, of the window before
  #gapsSince = -Infinity;
  #lively = false; // whether messages come often enough that silence is suspicious
  #budget = -Infinity; // each check costs one MS.budget, and this may be one ahead of the clock

  // Of the live connection.
  #paused = false; // whether the page itself was blocked until now: then times say nothing about the network
  #from = 0; // silence counts from here
  #owedSince = Infinity; // since when something is unanswered
  /** Unanswered pings, and when each was sent. @type {Map<number, number>} */
  #pings = new Map();
  #firstPing = Infinity; // when the first ping since anything was heard was sent
  #newestPing = -Infinity; // when the newest was
  #pingNumber = 0; // of the newest ping
  #check = 0; // the number of the check, a ping sent because of silence, that neither a pong nor data has answered
  #dataAt = NaN; // when the newest data message came

  /** @param {Session} session */
  constructor(session) {
    this.#session = session;
    this.#runtime = session._runtime;
    this.#silenceTimer = session._alarm(() => this.#onSilence(), 2);
    this.#answerTimer = session._alarm((late) => late || session._recovery._disconnected(0, false, true), 2); // after a sleep another ping was sent
  }

  // ---- spans of time

  /** Milliseconds since anything was heard, including those that the machine slept. */
  get _since() {
    return Math.max(this.#runtime.now() - this.#heardAt, this.#runtime.wall() - this._heardWall);
  }

  /**
   * Whether the gateway should have been heard by now, and has had half its time to answer. A
   * library that waits for a heartbeat may not wait until the connection is given up.
   */
  get _overdue() {
    const { heartbeat_ms: heartbeat, answer_ms: answer = 0 } = this.#session._terms;
    return heartbeat > 0 && answer > 0 && this._since >= heartbeat + answer / 2;
  }

  /** Protocol section 5: all times double with each connection in a row that ended in silence, up to eightfold. */
  get #scale() {
    return 2 ** this.#silences;
  }

  /** The round trip. A handshake has at least two. */
  get _roundTrip() {
    return this._rtt || this.#handshake / 2;
  }

  /** How long the answer to a ping may take. Until a ping was answered, a handshake is the measure. */
  get #answerTimeout() {
    return Math.max(MS.probe, this._rtt ? 4 * this._rtt : this.#handshake);
  }

  /** The max time in which nothing is heard. */
  get #maxSilence() {
    const { heartbeat_ms: heartbeat } = this.#session._terms;
    return heartbeat > 0 ? 2 * heartbeat * this.#scale : Infinity;
  }

  /**
   * How long an attempt may take until its 101. After a network outage it matters how soon the
   * next SYN is sent. A system sends one at 0, 1, 3
   * and 7 s of an attempt (or 0, 3 and 9; newer Linux each second at first), and the next
   * attempt begins with another after 4 to 5 s: no moment is further than 3 s from the next.
   * On a slow link a handshake takes up to 4 round trips (TCP, TLS 1.2, HTTP). An attempt that
   * would succeed must not time out, so the limit grows with the round trip, and an attempt whose
   * first two SYNs were lost has as much time left as the slowest handshake took. As long as it is
   * below 11 s, the next SYN is at most 4 s away.
   * @param {number} least
   */
  _limit(least) {
    return Math.min(Math.max(least, 4 * this._rtt, this.#slowest + least - 500), MS.connectMax);
  }

  // ---- connections

  /** A connection took so long until its 101. @param {number} ms */
  _opened(ms) {
    this.#handshake = Math.min(this.#handshake, ms);
    this.#newestHandshake = ms;
    this.#slowest = Math.max(this.#slowest, ms);
  }

  /** A connection has its hello. */
  _begin() {
    this._sign();
    this.#reset();
    this.#owedSince = Infinity;
  }

  /** The connection is no longer live. @param {boolean} silent whether it ended in silence */
  _end(silent) {
    this.#silenceTimer._clear();
    this.#answerTimer._clear();
    this.#silences = silent ? Math.min(this.#silences + 1, 3) : 0;
  }

  /** The page before last heard the gateway at t. @param {number} t by the wall clock */
  _restore(t) {
    this.#heardAt = this.#runtime.now() - (this.#runtime.wall() - t);
    this._heardWall = t;
  }

  /** The page or the machine slept: what was heard before says nothing. */
  _wake() {
    if (this._since >= this.#maxSilence) return this.#session._recovery._disconnected(0);
    this.#reset();
    this.#answerTimer._clear(); // an answer may have come during the sleep
    this._ask();
  }

  /** Silence counts from now, and no gap is measured across this moment. */
  #reset() {
    this.#breakSilence(this.#runtime.now());
    this.#pings.clear();
    this.#check = 0;
    this.#dataAt = NaN;
  }

  /** @param {number} t */
  #breakSilence(t) {
    this.#from = t;
    this.#firstPing = Infinity;
    this.#newestPing = -Infinity;
  }

  // ---- what came

  /**
   * A message is read.
   * @param {boolean} paused whether the page was blocked until now
   * @param {boolean} live whether it is the live connection's
   */
  _read(paused, live) {
    this.#paused = paused;
    if (live && this.#answerTimer._armed) this.#answerTimer._set(this.#answerTimeout); // the answer may be behind it
  }

  /** Something came. This alone counts for the times in `detach` and `resume`. */
  _sign() {
    this.#heardAt = this.#runtime.now();
    this._heardWall = this.#runtime.wall();
  }

  /** Something came on the live connection. */
  _heard() {
    this._sign();
    this.#breakSilence(this.#heardAt);
  }

  /** A data message came. @param {boolean} fresh whether it had not come before */
  _received(fresh) {
    const t = this.#heardAt;
    if (fresh) this.#silences = 0;
    // A gap in which a check was sent, and that data ended, is not usual.
    if (t >= this.#dataAt && !this.#paused && !this.#check) {
      const gap = t - this.#dataAt;
      if (t - this.#gapsSince >= MS.window) {
        this.#olderGaps = t - this.#gapsSince < 2 * MS.window ? this.#gaps : [0, 0];
        this.#gaps = [0, 0];
        this.#gapsSince = t;
      }
      const [longest, second] = this.#gaps;
      this.#gaps = gap > longest ? [gap, longest] : [longest, Math.max(second, gap)];
    }
    this.#dataAt = t;
    this.#check = 0;
    this.#lively = this.#gapsSince > -Infinity;
  }

  /**
   * Part of a large message came, or its announcement, and the next part is owed. The answers to
   * pings in flight are queued behind the message, so they do not measure the round trip; nor are
   * the times between parts usual gaps.
   */
  _queued() {
    this.#owe(this.#heardAt);
    for (const n of this.#pings.keys()) this.#pings.set(n, NaN);
    this.#dataAt = this.#heardAt;
  }

  /** All data that was sent is acked. */
  _acked() {
    if (this.#pings.size === 0) this.#owedSince = Infinity;
  }

  /** The answer to ping n came, and so to all before it. @param {number} n */
  _pong(n) {
    const t = this.#heardAt;
    if (n >= this.#asked) this.#answerTimer._clear();
    const sent = this.#pings.get(n);
    if (sent === undefined) return;
    if (!this.#paused && sent <= t)
      this._rtt = Math.max(1, this._rtt ? this._rtt + (t - sent - this._rtt) / 8 : t - sent);
    for (const older of this.#pings.keys()) if (older <= n) this.#pings.delete(older);
    if (!this.#check || this.#check > n) return;
    // The connection was only quiet, and the gap is usual. No more checks until data comes, nor soon after.
    this.#check = 0;
    this.#lively = false;
    this.#budget = t + 2 * MS.budget;
  }

  // ---- what is sent

  /** Something was sent that the gateway has to answer. */
  _sent() {
    this.#owe(this.#runtime.now());
    this._rearm();
  }

  /** @param {number} t */
  #owe(t) {
    this.#owedSince = Math.min(this.#owedSince, t);
  }

  /**
   * Sends a ping whose answer must come soon. Only the answer to this ping, or to a later one,
   * counts: any other message may have been waiting on this side since before the page slept.
   */
  _ask() {
    if (!this.#session._live || this.#answerTimer._armed) return;
    this.#asked = this.#ping();
    this.#answerTimer._set(this.#answerTimeout);
    this._rearm();
  }

  /** Sends a ping that waits for nothing itself: silence is measured from others. Returns its number. */
  _prompt() {
    this.#session._live?._say('ping', ++this.#pingNumber);
    return this.#pingNumber;
  }

  #ping() {
    const t = this.#runtime.now();
    const n = this._prompt();
    this.#pings.set(n, this.#session._delivery._upload._left ? NaN : t); // its answer may wait behind parts
    this.#firstPing = Math.min(this.#firstPing, t);
    this.#newestPing = t;
    this.#owe(t);
    return n;
  }

  // ---- silence

  /**
   * Sets the timer if it would fire too late. If it fires too early nothing happens, so messages
   * rarely cost a timer.
   */
  _rearm() {
    const conn = this.#session._live;
    if (!conn || conn._verdict) return;
    const left = this.#next().at - this.#runtime.now();
    if (left < -this.#silenceTimer._late) this.#silenceTimer._set(left);
  }

  #onSilence() {
    const session = this.#session;
    const conn = session._live;
    if (!conn || conn._verdict) return;
    if (conn._drains()) session._heard();
    const { at, what } = this.#next();
    const t = this.#runtime.now();
    if (at <= t) {
      if (what === DEAD) return session._recovery._disconnected(0, true);
      if (what === SUSPECT) {
        this.#budget = -Infinity; // the check was not needless, and attempts have a limit of their own
        session._recovery._suspect();
      } else {
        const n = this.#ping();
        if (what === CHECK) {
          this.#check = n;
          this.#budget = Math.max(this.#budget, t) + MS.budget;
        }
      }
      if (this._overdue) session._heartbeats._beat();
    }
    this._rearm();
  }

  /** What is due next, and when, if nothing is heard until then. */
  #next() {
    const scale = this.#scale;
    const { _state: state, _ending: ending, _terms: terms } = this.#session;
    const { answer_ms: answer = 0 } = terms;
    let next = { at: this.#from + this.#maxSilence, what: DEAD };
    const or = (/** @type {number} */ at, /** @type {number} */ what) => {
      if (at < next.at) next = { at, what };
    };
    if (answer > 0) {
      // A heartbeat that does not come is owed as well.
      const clock = Math.max(this.#from, Math.min(this.#owedSince, this.#from + this.#maxSilence / 2));
      const half = (scale * answer) / 2;
      const limit = this._rtt ? answer : Math.max(answer, MS.answer);
      const ofPing = Math.max((4 * this._rtt || 1.5 * this.#newestHandshake) * scale, half); // also if it was sent late
      or(Math.max(clock + scale * limit, this.#firstPing + ofPing), DEAD);
      or(Math.max(clock, this.#newestPing) + half, PING);
    }
    if (state === State.ATTACHED && !ending._request && this.#lively) {
      const [longest, second] = this.#gaps;
      const [olderLongest, olderSecond] = this.#olderGaps;
      // The longest usual gap: another one was at least as long. A single one is an exception.
      const usual = Math.max(Math.min(longest, olderLongest), second, olderSecond);
      const long = this.#from + scale * Math.max(MS.quiet, 4 * usual);
      if (this.#firstPing === Infinity) or(Math.max(long, this.#budget - MS.budget), CHECK);
      else or(Math.max(long, this.#firstPing + scale * this.#answerTimeout), SUSPECT);
    }
    return next;
  }
}
