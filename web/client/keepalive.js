import { bytesOf, isBytes } from './data.js';
import * as ReadyState from './readystate.js';
import * as State from './state.js';

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
  throw new TypeError('invalid keepalive');
}

/**
 * Supplies heartbeats of the game server while none can come, so that a client library does not
 * take its connection for dead.
 */
export class Heartbeats {
  #session;
  #keepalive;
  #timer; // the next heartbeat
  #unanswered = false; // the library has not answered the newest one

  /** @param {import('./session.js').Session} session */
  constructor(session) {
    this.#session = session;
    this.#keepalive = session._plan._keepalive;
    this.#timer = session._alarm((late) => this._beat(late));
  }

  /** Delivers a heartbeat if one is needed, and schedules the next. @param {boolean} [late] whether the page or the machine slept */
  _beat(late = false) {
    if (!this.#keepalive) return;
    const { receive, answer, every } = this.#keepalive;
    const session = this.#session;
    const open = session._readyState === ReadyState.OPEN;
    this.#timer._set(every);
    if (!open || (session._state === State.ATTACHED && !late && !session._liveness._overdue)) return;
    this.#unanswered = answer !== undefined;
    session._host._message(typeof receive === 'string' ? receive : bytesOf(receive), ''); // of no origin: it came from nowhere
  }

  /** Whether data is the library's answer to one: the game server did not ask. @param {unknown} data */
  _takes(data) {
    const own = this.#unanswered && data === this.#keepalive?.answer;
    if (own) this.#unanswered = false;
    return own;
  }
}
