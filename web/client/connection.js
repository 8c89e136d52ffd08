import * as ReadyState from './readystate.js';
import * as MS from './times.js';
import { ACK_BYTES, ACK_MESSAGES, DLE, PART_ANSWER } from './wire.js';

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
  _replayEnd = 0; // the number of the last replayed message; 0: it has come, or there is none
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
  #unanswered = 0; // bytes of parts since the gateway last heard that they come
  #answeredAt = -Infinity; // when it last did, or the message began
  /** @type {any} undefined until the address is known */
  _transport;
  /** The application's subprotocols on it. @type {string[]} */
  _protocols = [];
  /** The large message that is arriving. @type {import('./parts.js').Parts | undefined} */
  _parts;
  _from = 0; // where the next large message must begin
  /** Whether the gateway goes on with large messages where a connection was cut. */
  _resumesParts = false;

  /**
   * @param {number} since when it was opened; later, when its hello came
   * @param {string} token the token that it resumes with
   * @param {import('./delivery.js').Delivery} counts what it states of them holds until its hello
   */
  constructor(since, token, { _received: received, _held: held, _sent: sent }) {
    this._since = since;
    this._token = token;
    this._stated = received;
    this._held = held;
    this._settled = sent._received;
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

  /**
   * Counts a data message, or those that were skipped.
   * @param {number} bytes
   * @param {number} numbers
   * @returns {boolean} whether an ack is due at once
   */
  _took(bytes, numbers = 1) {
    this._last += numbers;
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

  /**
   * Part of a message came.
   * @param {number} bytes
   * @param {boolean} first whether it is the first of its message: a small message needs its ack alone
   * @param {number} t
   * @returns {number} milliseconds until _answerPart is due
   */
  _tookPart(bytes, first, t) {
    if (first) this.#answeredAt = t;
    this.#unanswered += bytes;
    const since = t - this.#answeredAt;
    if (!this._resumesParts) return since >= MS.ack ? 0 : Infinity;
    return this.#unanswered >= PART_ANSWER || since >= MS.part ? 0 : MS.part;
  }

  /** Says how much of a message has come. An older gateway hears the newest ack again: it says that this side is alive. @param {number} t */
  _answerPart(t) {
    if (this._parts && this.#unanswered > 0) {
      if (this._resumesParts) this._say('part', this._parts._held);
      else this._say('ack', this.#acked);
    }
    this.#unanswered = 0;
    this.#answeredAt = t;
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
