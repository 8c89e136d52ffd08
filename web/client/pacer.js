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
