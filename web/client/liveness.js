import * as MS from './times.js';

/**
 * Liveness of the live connection: the answer rule and suspicion of protocol section 5. The
 * session reports what it sends and receives; `next` says what to do about silence, and
 * when. There is no clock and no timer here: every `t` is the session's time in milliseconds.
 */
export class Liveness {
  /** Whether the page itself was blocked until now: then times say nothing of the line. */
  _paused = false;

  // Learned over all connections of the session.
  _rtt = 0; // smoothed as in RFC 6298; 0: not known
  #handshake = MS.beside; // the fastest, at most this: at least two round trips
  #opening = 0; // the newest, with no limit
  #silences = 0; // connections in a row that ended in silence, 3 at most
  #gaps = [0, 0]; // the longest and the second longest gap between data messages since #newer
  #older = [0, 0]; // the same, of the time before
  #newer = -Infinity;
  #lively = false;
  #credit = -Infinity; // each check costs one MS.budget, and this may be one ahead of the clock

  // Of the live connection.
  #from = 0; // silence counts from here
  #owed = Infinity; // since when something is unanswered
  /** @type {Map<number, number>} */
  #pings = new Map(); // the unanswered ones: when each was sent
  #first = Infinity; // when the first ping since anything was heard was sent
  #newest = -Infinity; // and the newest one
  #pinged = 0; // the number of the newest ping
  #check = 0; // number of the check (a ping out of suspicion) that neither a pong nor data has answered
  #data = NaN; // when the newest data message came

  /** protocol section 5: all times double with each connection in a row that ended in silence, up to eightfold. */
  get #scale() {
    return 2 ** this.#silences;
  }

  /** How long an answer may take before its ping says anything. While no ping was answered, a handshake must do. */
  get _patience() {
    return Math.max(MS.probe, this._rtt ? 4 * this._rtt : this.#handshake);
  }

  /** A connection took so long to its 101. @param {number} ms */
  _opened(ms) {
    this.#handshake = Math.min(this.#handshake, ms);
    this.#opening = ms;
  }

  /** How long nothing may be heard at all. @param {{ heartbeat_ms: number }} said */
  _limit({ heartbeat_ms }) {
    return heartbeat_ms > 0 ? 2 * heartbeat_ms * this.#scale : Infinity;
  }

  /** A connection has its hello. @param {number} t */
  _begin(t) {
    this._reset(t);
    this.#owed = Infinity;
  }

  /** A connection has ended. @param {boolean} silent */
  _end(silent) {
    this.#silences = silent ? Math.min(this.#silences + 1, 3) : 0;
  }

  /** The page slept: all clocks start anew, and no gap is measured across that. @param {number} t */
  _reset(t) {
    this._heard(t);
    this.#pings.clear();
    this.#check = 0;
    this.#data = NaN;
  }

  /** Anything at all came. @param {number} t */
  _heard(t) {
    this.#from = t;
    this.#first = Infinity;
    this.#newest = -Infinity;
  }

  /** A data message came. @param {number} t @param {boolean} fresh whether it had not come before */
  _received(t, fresh) {
    if (fresh) this.#silences = 0;
    // A stall that was long enough for a check, and that data ends, is no usual gap.
    if (t >= this.#data && !this._paused && !this.#check) this.#learn(t, t - this.#data);
    this.#data = t;
    this.#check = 0;
    this.#lively = this.#newer > -Infinity;
  }

  /**
   * Part of a large message came, and the next one is owed. What answers the pings under way waits behind
   * it, so they do not measure the round trip; nor are the times between parts usual gaps.
   * @param {number} t
   */
  _queued(t) {
    this._sent(t);
    for (const n of this.#pings.keys()) this.#pings.set(n, NaN);
    this.#data = t;
  }

  /** @param {number} t @param {number} gap */
  #learn(t, gap) {
    if (t - this.#newer >= MS.window) {
      this.#older = t - this.#newer < 2 * MS.window ? this.#gaps : [0, 0];
      this.#gaps = [0, 0];
      this.#newer = t;
    }
    const [longest, second] = this.#gaps;
    this.#gaps = gap > longest ? [gap, longest] : [longest, Math.max(second, gap)];
  }

  /** The longest usual gap: another one was at least as long. One alone is an accident. */
  get #usual() {
    return Math.max(Math.min(this.#gaps[0], this.#older[0]), this.#gaps[1], this.#older[1]);
  }

  /** Something was sent that the gateway has to answer. @param {number} t */
  _sent(t) {
    this.#owed = Math.min(this.#owed, t);
  }

  /** All data that was sent is acked. */
  _acked() {
    if (this.#pings.size === 0) this.#owed = Infinity;
  }

  /** A ping is sent. @param {number} t @param {boolean} check whether out of suspicion @returns {number} its number */
  _ping(t, check) {
    const n = ++this.#pinged;
    this.#pings.set(n, t);
    this.#first = Math.min(this.#first, t);
    this.#newest = t;
    this._sent(t);
    if (check) {
      this.#check = n;
      this.#credit = Math.max(this.#credit, t) + MS.budget;
    }
    return n;
  }

  /** The answer to ping n came, and so to all before it. @param {number} t @param {number} n */
  _pong(t, n) {
    const sent = this.#pings.get(n);
    if (sent === undefined) return;
    if (!this._paused && sent <= t)
      this._rtt = Math.max(1, this._rtt ? this._rtt + (t - sent - this._rtt) / 8 : t - sent);
    for (const older of this.#pings.keys()) if (older <= n) this.#pings.delete(older);
    if (!this.#check || this.#check > n) return;
    // The line was just quiet, and the gap counts. No more checks until data comes, nor soon after.
    this.#check = 0;
    this.#lively = false;
    this.#credit = t + 2 * MS.budget;
  }

  /** A suspicion begins: the check was not needless. Attempts have a limit of their own. */
  _suspected() {
    this.#credit = -Infinity;
  }

  /**
   * What to do next if nothing is heard until then: give the connection up, send a ping or
   * a check, or suspect it.
   * @param {{ answer_ms?: number, heartbeat_ms: number }} said
   * @param {boolean} suspicious whether the connection may be suspected
   */
  _next(said, suspicious) {
    const scale = this.#scale;
    const { answer_ms: answer = 0 } = said;
    let next = { at: this.#from + this._limit(said), what: 'dead' };
    const or = (/** @type {number} */ at, /** @type {string} */ what) => {
      if (at < next.at) next = { at, what };
    };
    if (answer > 0) {
      // A heartbeat that does not come is owed as well.
      const clock = Math.max(this.#from, Math.min(this.#owed, this.#from + this._limit(said) / 2));
      const half = (scale * answer) / 2;
      const limit = this._rtt ? answer : Math.max(answer, MS.answer);
      or(
        Math.max(clock + scale * limit, this.#first + Math.max((4 * this._rtt || 1.5 * this.#opening) * scale, half)),
        'dead',
      ); // also of a ping that went late
      or(Math.max(clock, this.#newest) + half, 'ping');
    }
    if (suspicious && this.#lively) {
      const long = this.#from + scale * Math.max(MS.quiet, 4 * this.#usual);
      if (this.#first === Infinity) or(Math.max(long, this.#credit - MS.budget), 'check');
      else or(Math.max(long, this.#first + scale * this._patience), 'suspect');
    }
    return next;
  }
}
