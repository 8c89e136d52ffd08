import * as MS from './times.js';

/** @typedef {import('./types.js').ReseatRuntime} ReseatRuntime */

/** A timer that knows how late it is, also by the wall clock, which runs on while the machine sleeps. */
export class Alarm {
  #runtime;
  #ring;
  #retries;
  /** @type {any} */
  #timer;
  #mono = Infinity;
  #wall = Infinity;

  /**
   * @param {ReseatRuntime} runtime
   * @param {(late: boolean) => void} ring
   * @param {number} retries how often a late alarm rings MS.moment later instead: the page was
   *   blocked, and a message that would cancel the alarm may be waiting. The number is limited,
   *   since timers of hidden pages are always late.
   */
  constructor(runtime, ring, retries) {
    this.#runtime = runtime;
    this.#ring = ring;
    this.#retries = retries;
  }

  get _armed() {
    return this.#mono !== Infinity;
  }

  /** Milliseconds since it was due: negative before that, -Infinity if it is not set. */
  get _late() {
    return Math.max(this.#runtime.now() - this.#mono, this.#runtime.wall() - this.#wall);
  }

  /** @param {number} ms @param {number} [retries] */
  _set(ms, retries = this.#retries) {
    this._clear();
    const wait = Math.min(ms, 2 ** 31 - 1);
    this.#setDue(wait);
    this.#timer = this.#runtime.setTimeout(() => {
      const late = this._late;
      if (retries > 0 && late > MS.paused && late <= MS.slept) return this._set(MS.moment, retries - 1);
      this._clear();
      return this.#ring(late > MS.slept);
    }, wait);
  }

  /** From now on it is not late: its lateness has been handled. */
  _forgive() {
    if (this._late > 0) this.#setDue(0);
  }

  _clear() {
    this.#runtime.clearTimeout(this.#timer);
    this.#setDue(Infinity);
  }

  /** @param {number} ms from now */
  #setDue(ms) {
    this.#mono = this.#runtime.now() + ms;
    this.#wall = this.#runtime.wall() + ms;
  }
}
