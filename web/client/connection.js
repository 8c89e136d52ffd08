import * as ReadyState from './readystate.js';
import * as MS from './times.js';
import { ACK_BYTES, ACK_MESSAGES, DLE } from './wire.js';

/** @typedef {import('./types.js').Verdict} Verdict */

/** @param {any} transport @param {string} type @param {(event: any) => void} heard */
export function listen(transport, type, heard) {
  if (transport.addEventListener) transport.addEventListener(type, heard);
  else transport[`on${type}`] = heard;
}

/** Opens a transport. @param {any} Transport @param {string} url @param {string[]} protocols */
export function dial(Transport, url, protocols) {
  const transport = new Transport(url, protocols);
  try {
    transport.binaryType = 'arraybuffer'; // a Blob has no bytes until it is read
  } catch {
    // Not every transport has it.
  }
  listen(transport, 'error', () => {}); // ws throws an error that has no listener
  return transport;
}

/** Some transports refuse to close before they are open. @param {any} transport @param {any[]} how */
export function close(transport, ...how) {
  try {
    transport.close(...how);
  } catch {
    // Its events are ignored from now on.
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
    if (`${data}`.startsWith(DLE + 'hello ')) transport.send(DLE + 'bye {"code":1001}');
    close(transport);
  });
}

/** A connection of a session, or an attempt. */
export class Connection {
  _opened = false;
  _hello = 0; // the number of its hello in the session; 0: none yet
  _last = 0; // the number of the newest message on it, repeated ones included
  _replay = 0; // how many replayed messages follow
  _bye = 0; // the code of the bye that was sent; 0: none
  _useful = false; // whether anything new came on it
  _broken = false; // whether the gateway sent what it must not send
  _awaited = false; // whether at its hello anything new was expected
  _awaitedAfterDeadline = false; // whether an attempt goes on after the deadline
  _bare = false; // whether it makes no offer of reseat.v1
  /** @type {Verdict | null} */
  _verdict = null;
  #acked = -1; // the number of the newest ack that was sent
  #messages = 0; // how many came since then
  #bytes = 0;
  #backlog = 0; // bufferedAmount at the last check
  #flowed = false; // whether it has been 0 since then
  #repeatedAt = -Infinity; // when the newest ack was repeated
  /** @type {any} undefined until the address is known */
  _transport;
  /** The application's subprotocols on it. @type {string[]} */
  _protocols = [];
  /** The large message in progress. @type {import('./parts.js').Parts | undefined} */
  _parts;

  /**
   * @param {number} since when it was opened; later, when its hello came
   * @param {string} token the token that it resumes with
   * @param {number} stated the N that it resumes with
   * @param {number} settled how many of the application's messages were acked when it was opened
   */
  constructor(since, token, stated, settled) {
    this._since = since;
    this._token = token;
    this._stated = stated;
    this._settled = settled;
  }

  /** Whether no side has begun to close it. */
  get _usable() {
    return !this._bye && !this._verdict;
  }

  /** @param {string | ArrayBuffer} data */
  _send(data) {
    const transport = this._transport;
    // A browser drops data for a closing connection, and warns on its console.
    if (transport.readyState >= ReadyState.CLOSING) return;
    this.#flowed ||= !transport.bufferedAmount;
    try {
      transport.send(data);
    } catch {
      // The connection is closing; its close event follows.
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

  /** Acks the messages up to n, if that is new. @param {number} n @returns {boolean} whether all are acked */
  _ack(n) {
    const all = n >= this._last;
    if (all) this.#messages = this.#bytes = 0;
    n = Math.min(n, this._last);
    if (n > this.#acked) this._say('ack', (this.#acked = n));
    return all;
  }

  /** Part of a message came. It cannot be acked: repeating the newest ack tells the gateway that this side is alive. @param {number} t */
  _tookPart(t) {
    if (t - this.#repeatedAt < MS.ack) return;
    this.#repeatedAt = t;
    this._say('ack', this.#acked);
  }

  /**
   * Whether the peer still reads: bufferedAmount fell since the last check, and was never 0.
   * If it was, the buffers of this machine may have taken the bytes.
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
