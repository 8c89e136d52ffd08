import * as MS from './times.js';

/**
 * When to try again: at once after a good connection, then after a random part of a span
 * that doubles from 1 s to 5 s. Three connections in a row that came to nothing are
 * forgiven; after that a new hello no longer means that the next attempt comes at once.
 */
export class Pacer {
  #random;
  #tries = 0;
  #barren = 0;
  #futile = 0; // barren connections in a row of which something was expected
  #futileSince = 0;
  #begun = -Infinity; // when the newest attempt began
  #slowest = 0; // what a connection has taken to its 101, at most
  #falseAlarms = 0; // suspicions in a row of a connection that spoke after all

  /** @param {() => number} random */
  constructor(random) {
    this.#random = random;
  }

  /**
   * How long the next attempt has to wait. The pause counts from the start of the one
   * before: after one that ran out of time the next follows at once.
   * @param {number} t now
   * @param {boolean} beside whether beside a suspected connection (protocol section 5)
   * @param {number} overtime how much longer the outage is than the session is said to be kept
   */
  _pause(t, beside, overtime) {
    const span = Math.min(MS.jitter + overtime / 16, 500 * 2 ** this.#tries);
    const least = beside
      ? MS.beside * 2 ** this.#falseAlarms
      : this.#tries++ && Math.max(MS.minGap, this.#random() * span);
    return Math.max(this.#begun + least - t, 0);
  }

  /** An attempt begins. @param {number} t */
  _begin(t) {
    this.#begun = t;
  }

  /** A connection took so long to its 101. @param {number} ms */
  _opened(ms) {
    this.#slowest = Math.max(this.#slowest, ms);
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
   * @param {number} rtt
   * @param {number} least
   */
  _limit(rtt, least) {
    return Math.min(Math.max(least, 4 * rtt, this.#slowest + least - 500), MS.connectMax);
  }

  /**
   * By how much Firefox may hold the next attempt back: see Reach. An attempt that is given up
   * meanwhile counts as one more failure.
   */
  get _firefoxDelay() {
    return Math.min(400 * 1.5 ** this.#tries, 60_000);
  }

  /** A suspicion is over. @param {boolean} spoke whether it was a false alarm */
  _suspected(spoke) {
    this.#falseAlarms = spoke ? this.#falseAlarms + 1 : 0;
  }

  /**
   * A connection that had its hello is lost.
   * @param {number} t now
   * @param {boolean} good whether it held, or carried anything new
   * @param {boolean} awaited whether there was anything new to carry
   * @returns {boolean} whether to give up
   */
  _lost(t, good, awaited) {
    this.#barren = good ? 0 : this.#barren + 1;
    this.#tries = Math.max(0, this.#barren - 3);
    if (good || !awaited) this.#futile = 0;
    else if (this.#futile++ === 0) this.#futileSince = t;
    // So many in a row, over so long, are no accident.
    return this.#futile >= 10 && t - this.#futileSince >= MS.futile;
  }
}
