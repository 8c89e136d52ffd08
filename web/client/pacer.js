import * as MS from './times.js';

/**
 * Backoff: the first attempt comes at once after a good connection, the next ones after a random
 * part of a span that doubles from 1 s to 5 s. After three useless connections in a row even the
 * first attempt after a hello waits.
 */
export class Pacer {
  #random;
  #tries = 0;
  #useless = 0;
  #futile = 0; // useless connections in a row on which something was expected
  #futileSince = 0;
  #begun = -Infinity; // when the newest attempt began
  #slowest = 0; // the longest time until a 101
  #falseAlarms = 0; // suspicions in a row of a connection that was alive

  /** @param {() => number} random */
  constructor(random) {
    this.#random = random;
  }

  /**
   * How long the next attempt has to wait. The pause counts from the start of the attempt before,
   * so after a timeout the next one begins at once.
   * @param {number} t now
   * @param {boolean} beside whether beside a suspected connection (protocol section 5)
   * @param {number} overtime how much longer the outage lasts than the gateway said that it keeps the session
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
   * How long an attempt may take until its 101. After a network outage it matters how soon the
   * next SYN is sent. A system sends one at 0, 1, 3
   * and 7 s of an attempt (or 0, 3 and 9; newer Linux each second at first), and the next
   * attempt begins with another after 4 to 5 s: no moment is further than 3 s from the next.
   * On a slow link a handshake takes up to 4 round trips (TCP, TLS 1.2, HTTP). An attempt that
   * would succeed must not time out, so the limit grows with the round trip, and an attempt whose
   * first two SYNs were lost has as much time left as the slowest handshake took. As long as it is
   * below 11 s, the next SYN is at most 4 s away.
   * @param {number} rtt
   * @param {number} least
   */
  _limit(rtt, least) {
    return Math.min(Math.max(least, 4 * rtt, this.#slowest + least - 500), MS.connectMax);
  }

  /**
   * How long Firefox may delay the next attempt: see Reach. An attempt that is abandoned
   * meanwhile counts as one more failure.
   */
  get _firefoxDelay() {
    return Math.min(400 * 1.5 ** this.#tries, 60_000);
  }

  /** A suspicion is over. @param {boolean} falseAlarm */
  _suspected(falseAlarm) {
    this.#falseAlarms = falseAlarm ? this.#falseAlarms + 1 : 0;
  }

  /**
   * A connection that had its hello is lost.
   * @param {number} t now
   * @param {boolean} good whether it lasted, or anything new came on it
   * @param {boolean} awaited whether anything new was expected
   * @returns {boolean} whether to give up
   */
  _lost(t, good, awaited) {
    this.#useless = good ? 0 : this.#useless + 1;
    this.#tries = Math.max(0, this.#useless - 3);
    if (good || !awaited) this.#futile = 0;
    else if (this.#futile++ === 0) this.#futileSince = t;
    // So many in a row, over such a time, are not chance.
    return this.#futile >= 10 && t - this.#futileSince >= MS.futile;
  }
}
