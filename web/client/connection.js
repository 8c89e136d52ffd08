import * as ReadyState from './readystate.js';
import * as MS from './times.js';
import { ACK_BYTES, ACK_MESSAGES, DLE } from './wire.js';

/** @typedef {import('./types.js').Verdict} Verdict */

/** @param {any} transport @param {string} type @param {(event: any) => void} heard */
export function listen(transport, type, heard) {
  if (transport.addEventListener) transport.addEventListener(type, heard);
  else transport[`on${type}`] = heard;
}

/** A transport that is opened. @param {any} Transport @param {string} url @param {string[]} protocols */
export function dial(Transport, url, protocols) {
  const transport = new Transport(url, protocols);
  try {
    transport.binaryType = 'arraybuffer'; // so that every message has its size and its turn at once
  } catch {
    // A transport without it delivers what it likes.
  }
  listen(transport, 'error', () => {}); // what nobody listens to, ws throws
  return transport;
}

/** Some transports refuse to close before they are open. @param {any} transport @param {any[]} how */
export function close(transport, ...how) {
  try {
    transport.close(...how);
  } catch {
    // Nobody listens any more.
  }
}

/**
 * Ends the session of a connection that the application closed before its hello (protocol
 * section 10): waits for hello, says `bye` and closes. All other events are ignored.
 * @param {any} transport
 * @param {import('./types.js').ReseatRuntime} runtime
 */
export function sayByeAfterHello(transport, runtime) {
  const timer = runtime.setTimeout(() => close(transport), MS.resumeHello);
  listen(transport, 'close', () => runtime.clearTimeout(timer));
  listen(transport, 'message', ({ data }) => {
    if (`${data}`.startsWith(`${DLE}hello `)) transport.send(`${DLE}bye {"code":1001}`);
    close(transport);
  });
}

/** One connection, or the attempt at one. Its session's alone. */
export class Connection {
  _opened = false;
  _hello = 0; // which of the session's hellos this connection got; 0: none yet
  _last = 0; // number of the newest message that came on it, repeats included
  _replay = 0; // replayed messages still to come
  _bye = 0; // the code of the bye that was said on it; 0: none
  _useful = false; // whether it brought anything new
  _broken = false; // whether the gateway sent what it must not send
  _awaited = false; // whether at its hello there was anything new to come
  _awaitedAfterDeadline = false; // an attempt that is made even after the deadline
  _bare = false; // an attempt without the offer of reseat.v1
  /** @type {Verdict | null} */
  _verdict = null;
  #acked = -1; // the newest ack given on it
  #messages = 0; // what came since that is not acked
  #bytes = 0;
  #backlog = 0; // bufferedAmount at the last look
  #flowed = false; // whether it was 0 at any time since
  #spoken = -Infinity; // when the newest ack was repeated
  /** @type {any} undefined until the address is known */
  _transport;
  /** The application's subprotocols on it. @type {string[]} */
  _protocols = [];
  /** The large message that is coming. @type {import('./parts.js').Parts | undefined} */
  _parts;

  /**
   * @param {number} since when it was opened; later, when its hello came
   * @param {string} token that it resumes with
   * @param {number} stated the N that it resumes with
   * @param {number} settled what was acked of the application's messages when it was opened
   */
  constructor(since, token, stated, settled) {
    this._since = since;
    this._token = token;
    this._stated = stated;
    this._settled = settled;
  }

  /** Whether neither side has said farewell on it. */
  get _usable() {
    return !this._bye && !this._verdict;
  }

  /** @param {string | ArrayBuffer} data */
  _send(data) {
    const transport = this._transport;
    // A browser complains on its console of what is sent to a closing connection, and drops it.
    if (transport.readyState >= ReadyState.CLOSING) return;
    this.#flowed ||= !transport.bufferedAmount;
    try {
      transport.send(data);
    } catch {
      // A connection that is closing takes nothing; its close event follows.
    }
  }

  /** @param {string} verb @param {string | number} argument */
  _say(verb, argument) {
    this._send(DLE + verb + (argument === '' ? '' : ` ${argument}`));
  }

  /** Counts a data message. @param {number} bytes @returns {boolean} whether an ack is due at once */
  _took(bytes) {
    this._last++;
    this.#bytes += bytes;
    return ++this.#messages >= ACK_MESSAGES || this.#bytes >= ACK_BYTES;
  }

  /** Acks what came up to n, if that is news. @param {number} n @returns {boolean} whether that is all */
  _ack(n) {
    const all = n >= this._last;
    if (all) this.#messages = this.#bytes = 0;
    n = Math.min(n, this._last);
    if (n > this.#acked) this._say('ack', (this.#acked = n));
    return all;
  }

  /** Part of a message came. An ack is for a whole one: the newest, again, says that this side lives. @param {number} t */
  _tookPart(t) {
    if (t - this.#spoken < MS.ack) return;
    this.#spoken = t;
    this._say('ack', this.#acked);
  }

  /**
   * Whether the peer goes on taking bytes: some have gone since the last look, and at no
   * time since was there room for all. Where there was, the machine's own buffers took them.
   */
  _drains() {
    const before = this.#backlog;
    const flowed = this.#flowed;
    this.#backlog = this._transport.bufferedAmount || 0;
    this.#flowed = false;
    return this.#backlog < before && !flowed;
  }

  _close() {
    close(this._transport);
  }
}
