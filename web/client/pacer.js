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

  /** @param {() => number} random */
  constructor(random) {
    this.#random = random;
  }

  /** The pause before the next attempt, in milliseconds. */
  next() {
    const tries = this.#tries++;
    return tries === 0 ? 0 : Math.max(MS.breath, this.#random() * Math.min(MS.jitter, 1000 * 2 ** (tries - 1)));
  }

  /** A connection that had its hello is lost. @param {boolean} useful whether it held, or carried anything new */
  lost(useful) {
    this.#barren = useful ? 0 : this.#barren + 1;
    this.#tries = Math.max(0, this.#barren - 3);
  }
}
