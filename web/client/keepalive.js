import { bytesOf, isBytes } from './data.js';

/** @typedef {import('./types.js').Keepalive} Keepalive */

/**
 * Heartbeats by name. Engine.IO, protocol revision 4: ping and pong packets. y-websocket: an
 * awareness update (message type 1, 1 byte long) with no entries, which changes nothing.
 * @type {any}
 */
const KEEPALIVES = {
  __proto__: null,
  'engine.io': { receive: '2', answer: '3', every: 5_000 },
  'y-websocket': { receive: new Uint8Array([1, 1, 0]), every: 5_000 },
};

/** @param {any} given @returns {Keepalive | null} */
export function keepaliveOf(given) {
  if (given === undefined || given === null) return null;
  const { receive, answer, every } = Object(KEEPALIVES[given] ?? given);
  const bytes = isBytes(receive);
  if ((bytes || typeof receive === 'string') && (answer === undefined || typeof answer === 'string') && every > 0) {
    return { receive: bytes ? bytesOf(receive) : receive, answer, every };
  }
  throw new TypeError(`keepalive: want ${Object.keys(KEEPALIVES)} or { receive, answer, every }`);
}

/**
 * Keeps a library's own watchdog quiet, while only the gateway knows the game server: gives it
 * heartbeats that stand in for the game's.
 */
export class StandIns {
  #keepalive;
  #needed;
  #deliver;
  #next;
  #unanswered = false; // an answer goes to the newest

  /**
   * @param {Keepalive | null} keepalive
   * @param {(ring: (late: boolean) => void) => import('./alarm.js').Alarm} alarm
   * @param {(late: boolean) => boolean} needed
   * @param {(data: string | ArrayBuffer) => void} deliver
   */
  constructor(keepalive, alarm, needed, deliver) {
    this.#keepalive = keepalive;
    this.#needed = needed;
    this.#deliver = deliver;
    this.#next = alarm((late) => this._beat(late));
  }

  /** One is due, and given if one is needed; from here on they come at their times. @param {boolean} [late] */
  _beat(late = false) {
    if (!this.#keepalive) return;
    const { receive, answer, every } = this.#keepalive;
    this.#next._set(every);
    if (!this.#needed(late)) return;
    this.#unanswered = answer !== undefined;
    this.#deliver(typeof receive === 'string' ? receive : bytesOf(receive));
  }

  /** Whether that is the library's answer to one: the game server did not ask. @param {unknown} data */
  _takes(data) {
    const own = this.#unanswered && data === this.#keepalive?.answer;
    if (own) this.#unanswered = false;
    return own;
  }
}
