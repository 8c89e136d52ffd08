// A game's page that knows nothing of Reseat: when its connection is lost it opens
// another one, as such pages do.
import { numberOf } from './numbered.js';

/** How long it waits before it connects again, in ms. */
const PAUSE = 100;

/** A Visitor plays over one ordinary WebSocket after the other. */
export class Visitor {
  /** The first number that came on each connection. @type {number[]} */
  firsts = [];
  /** Connections that opened. */
  opened = 0;
  /** Connections, or attempts at one, that ended: nothing of theirs is still to come. */
  closed = 0;
  /** The newest number that came. */
  newest = 0;
  /** Numbers that had come before. */
  repeats = 0;
  /** What was wrong: a gap, a damaged message, an order that is none. @type {string[]} */
  faults = [];

  #url;

  /** @param {string} url */
  constructor(url) {
    this.#url = url;
    this.#connect();
  }

  #connect() {
    const socket = new WebSocket(this.#url);
    let last = 0;
    socket.binaryType = 'arraybuffer';
    socket.onopen = () => this.opened++;
    socket.onclose = () => {
      this.closed++;
      setTimeout(() => this.#connect(), PAUSE);
    };
    socket.onmessage = ({ data }) => {
      const n = numberOf(data);
      this.#note(n, last);
      last = Number(n);
    };
  }

  /** @param {number | string} n @param {number} last that came on this connection; 0: none has */
  #note(n, last) {
    if (typeof n === 'string' || (last > 0 && n !== last + 1) || n > this.newest + 1) {
      this.faults.push(`got ${n} after ${last}, and ${this.newest} in all`);
      return;
    }
    if (last === 0) this.firsts.push(n);
    if (n <= this.newest) this.repeats++;
    else this.newest = n;
  }

  report() {
    const { firsts, opened, closed, newest, repeats, faults } = this;
    return { firsts, opened, closed, newest, repeats, faults };
  }
}
