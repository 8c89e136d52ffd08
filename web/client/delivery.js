import { Outbox } from './outbox.js';
import { Parts } from './parts.js';
import * as ReadyState from './readystate.js';
import * as MS from './times.js';
import { escaped, sizeOf } from './wire.js';

/** @typedef {import('./connection.js').Connection} Connection */
/** @typedef {import('./session.js').Session} Session */
/** @typedef {import('./types.js').Message} Message */

/**
 * Exactly-once delivery over any number of connections: counts, acks and replay in both
 * directions. The outbox has the messages that were sent and are not acked.
 */
export class Delivery {
  #session;
  _received = 0; // the number of the newest message from the gateway
  _sent = new Outbox();
  #discarded = 0; // bytes given to send() after the end
  #turn = 0; // bufferedAmount does not fall below this before the application's turn is over, as with WebSocket
  _ackTimer;

  /** @param {Session} session */
  constructor(session) {
    this.#session = session;
    this._ackTimer = session._alarm(() => this._ack());
  }

  // ---- upward

  get _bufferedAmount() {
    return Math.max(this._sent._waiting + this.#discarded, this.#turn);
  }

  /** Counts the bytes of a message in bufferedAmount. @param {number} bytes */
  _count(bytes) {
    if (!this.#turn) queueMicrotask(() => (this.#turn = 0));
    this.#turn = this._bufferedAmount + bytes;
  }

  /**
   * Sends a message. A Blob keeps its place in the order while it is read.
   * @param {Message} data
   * @param {number} bytes
   */
  _send(data, bytes) {
    if (this.#session._readyState !== ReadyState.OPEN) {
      this.#discarded += bytes;
    } else if (data instanceof Blob) {
      const entry = this._sent._add(null, bytes);
      data.arrayBuffer().then(
        (read) => {
          entry.data = read;
          this._pump();
        },
        () => this.#session._ending._unreadable(),
      );
    } else {
      this._sent._add(data, bytes);
      this._pump();
    }
  }

  /** Sends on the live connection what the window allows, and after the last message the close of the application. */
  _pump() {
    const session = this.#session;
    const conn = session._usable;
    if (!conn) return;
    for (let data; (data = this._sent._next(session._terms.limits)) !== undefined; session._liveness._sent()) {
      if (this._ackTimer._late >= MS.ackAlong - MS.ack) this._ack();
      conn._send(escaped(data));
    }
    if (this._sent._drained) session._ending._sayBye(conn);
  }

  /** @param {Connection} conn @param {number} n */
  _onAck(conn, n) {
    if (!this._sent._ack(n)) return this.#session._broken(conn);
    conn._useful = true;
    this._onAnswered();
    this._pump();
  }

  /** An ack or a pong came, or the last part of a message. */
  _onAnswered() {
    if (!this._sent._owed && !this.#session._live?._parts) this.#session._liveness._acked();
  }

  // ---- downward

  /** @param {Connection} conn @param {{ bytes: number, text: boolean }} announced */
  _onParts(conn, announced) {
    try {
      conn._parts = new Parts(announced);
    } catch {
      return this.#session._broken(conn); // more than there is memory for
    }
    this.#session._liveness._received(false);
    this.#session._liveness._queued();
  }

  /**
   * Takes a part of a large message (protocol section 3.1).
   * @param {Connection} conn
   * @param {any} data
   * @returns {any} the whole message after its last part
   */
  _onPart(conn, data) {
    const session = this.#session;
    let whole;
    try {
      whole = conn._parts?._add(data);
    } catch {
      return session._broken(conn);
    }
    session._heard();
    session._liveness._queued();
    if (conn._usable) conn._tookPart(session._runtime.now());
    if (whole === undefined) return undefined;
    conn._parts = undefined;
    this._onAnswered();
    return whole;
  }

  /** @param {Connection} conn @param {any} data */
  _onData(conn, data) {
    const session = this.#session;
    const due = conn._took(sizeOf(data));
    const number = conn._last;
    const fresh = number > this._received;
    session._liveness._received(fresh);
    if (fresh) {
      this._received = number;
      conn._useful = true;
      if (session._readyState === ReadyState.OPEN) session._host._message(data);
    }
    if (conn._replay > 0 && --conn._replay === 0) session._host._notice('replayed');
    if (conn !== session._live) return; // the application or its messages ended it
    if (due) this._ack();
    else if (!this._ackTimer._armed) this._ackTimer._set(MS.ack);
  }

  /**
   * Acks what came, if that is news. While a resume is in progress that stated N, an older
   * connection acks nothing beyond N (protocol section 5).
   */
  _ack() {
    const { _live: conn, _attempts: attempts } = this.#session;
    if (conn?._usable && conn._ack(attempts._current?._stated ?? Infinity)) this._ackTimer._clear();
  }

  /** Goes on from the record of the page before. Throws if it makes no sense. @param {import('./records.js').SavedSession} saved */
  _restore({ out, received }) {
    this._sent = Outbox._restore(out);
    this._received = received;
  }

  // ---- connections

  /** Whether the session can go on with this hello. @param {Connection} conn @param {import('./wire.js').Hello} hello */
  _admits(conn, { received, moved }) {
    // Protocol section 8: after a failover the numbers differ from those that an older connection has used since.
    const outdated = moved === 'failover' && (this._received > conn._stated || this._sent._received > conn._settled);
    return !outdated && this._sent._admits(received);
  }

  /** A connection is live: counts go on from its hello. @param {Connection} conn @param {import('./wire.js').Hello} hello */
  _begin(conn, { replay, lost }) {
    conn._replay = replay;
    conn._awaited = replay > 0 || this._sent._unacked;
    conn._last = conn._stated + lost;
    this._received = Math.max(this._received, conn._last);
  }
}
