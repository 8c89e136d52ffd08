// @ts-check

/**
 * A Tally checks numbers that should run 1, 2, 3 and so on. Every number that
 * comes is exactly one of: new, late (it was passed over before) or a double.
 * Invariant: got + missed + skipped is the highest number seen, or skipped.
 */
export class Tally {
  /** Different numbers seen. */
  got = 0;
  /** Numbers passed over and not seen since. */
  missed = 0;
  /** Numbers that came again. */
  twice = 0;
  /** Numbers that came after a higher one. */
  late = 0;
  /** Numbers whose messages newer ones have replaced. */
  skipped = 0;

  /** @type {Set<number>} the numbers passed over, at most MAX_GAPS */
  #passed = new Set();

  /** @param {{got: number, missed: number, twice: number, late: number, skipped?: number}} [counts] of a Tally before, to go on from */
  constructor({ got, missed, twice, late, skipped = 0 } = { got: 0, missed: 0, twice: 0, late: 0 }) {
    Object.assign(this, { got, missed, twice, late, skipped });
  }

  /** The next so many numbers do not come: newer messages have replaced theirs. @param {number} count */
  skip(count) {
    this.skipped += count;
  }

  /**
   * Takes the next number that came.
   * @param {number} n
   */
  note(n) {
    const next = this.got + this.missed + this.skipped + 1;
    if (n >= next) {
      for (let k = next; k < n && this.#passed.size < MAX_GAPS; k++) this.#passed.add(k);
      this.missed += n - next;
      this.got++;
    } else if (this.#passed.delete(n)) {
      this.missed--;
      this.got++;
      this.late++;
    } else {
      this.twice++;
    }
  }
}

/** How many single numbers a Tally remembers as passed over; later ones stay missed. */
const MAX_GAPS = 10_000;
