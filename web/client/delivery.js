import { Outbox } from './outbox.js';
import { Parts, Upload } from './parts.js';
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
  /** The large message after it, of which only some has come. @type {Parts | undefined} */
  #partial;
  _sent = new Outbox();
  _upload = new Upload(); // of the live connection
  #discarded = 0; // bytes given to send() after the end
  #turn = 0; // bufferedAmount does not fall below this before the application's turn is over, as with WebSocket
  _ackTimer;
  _partTimer; // the answer to parts

  /** @param {Session} session */
  constructor(session) {
    this.#session = session;
    this._ackTimer = session._alarm(() => this._ack());
    this._partTimer = session._alarm(() => this._answer());
  }

  // ---- upward

  get _bufferedAmount() {
    return Math.max(this._sent._waiting + this._upload._left + this.#discarded, this.#turn);
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
    const { limits, part_bytes: size = 0 } = session._terms;
    const upload = this._upload;
    for (; ; session._liveness._sent()) {
      const part = upload._next(size, session._runtime.now());
      if (part) {
        conn._send(part);
        if (upload._asks) session._liveness._prompt();
        continue;
      }
      const entry = upload._left ? undefined : this._sent._next(limits);
      if (!entry) break;
      const data = escaped(entry.data);
      if (this._ackTimer._late >= MS.ackAlong - MS.ack) this._ack();
      const large = conn._resumesParts && size > 0 && entry.bytes >= size && upload._begin(data, size);
      if (large) conn._say('parts', JSON.stringify(large));
      else conn._send(data);
    }
    if (this._sent._drained && !upload._left) session._ending._sayBye(conn);
  }

  /** The gateway has n bytes of the message that is sent in parts. @param {Connection} conn @param {number} n */
  _onPartAnswer(conn, n) {
    const { _runtime: runtime, _liveness: liveness } = this.#session;
    conn._useful = true;
    const waited = !!conn._parts; // behind other parts: the line is no slower
    this._upload._onAnswer(n, runtime.now(), (waited ? 2 : 1) * MS.partWindow + 2 * liveness._roundTrip, waited);
    this._pump();
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

  /** Bytes of the message after _received that have come. */
  get _held() {
    return this.#partial?._held ?? 0;
  }

  /** @param {Connection} conn @param {import('./parts.js').Announced} announced */
  _onParts(conn, announced) {
    const known = conn._last < this._received; // it has come whole on an older connection
    const from = conn._from;
    conn._from = 0;
    try {
      if (conn._parts || announced.from !== from) throw new Error();
      if (from > 0 && !known && !this.#partial?._continue(announced)) throw new Error();
      conn._parts = from > 0 && !known ? this.#partial : new Parts(announced); // throws if there is not enough memory
    } catch {
      return this.#brokenParts(conn);
    }
    if (!known) this.#partial = conn._parts;
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
    const parts = conn._parts;
    let whole;
    try {
      whole = parts?._add(data);
    } catch {
      return this.#brokenParts(conn);
    }
    session._heard();
    session._liveness._queued();
    conn._useful ||= conn._resumesParts;
    const bytes = sizeOf(data);
    const wait = conn._tookPart(bytes, parts?._held === bytes, session._runtime.now());
    if (wait === 0 && whole === undefined) this._answer();
    else if (wait < Infinity && !this._partTimer._armed) this._partTimer._set(wait);
    if (whole === undefined) return undefined;
    if (parts === this.#partial) this.#partial = undefined;
    conn._parts = undefined;
    this._onAnswered();
    return whole;
  }

  /** Another attempt at the message begins anew. @param {Connection} conn */
  #brokenParts(conn) {
    this.#partial = undefined;
    return this.#session._broken(conn);
  }

  /** @param {Connection} conn @param {any} data */
  _onData(conn, data) {
    const session = this.#session;
    const due = conn._took(sizeOf(data));
    const fresh = this.#advance(conn) > 0;
    session._liveness._received(fresh);
    if (fresh && session._readyState === ReadyState.OPEN) session._host._message(data);
    this.#counted(conn, due);
  }

  /** Newer messages have replaced these: they count as if they had come. @param {Connection} conn @param {number} numbers */
  _onSkip(conn, numbers) {
    if (conn._parts) return this.#brokenParts(conn);
    const due = conn._took(0, numbers);
    const skipped = this.#advance(conn);
    if (skipped > 0) this.#session._host._notice('skip', { skipped });
    this.#counted(conn, due);
  }

  /** What came on a connection is received. Returns how many of its numbers are new. @param {Connection} conn */
  #advance(conn) {
    const fresh = conn._last - this._received;
    if (fresh > 0) {
      this._received = conn._last;
      conn._useful = true;
    }
    return fresh;
  }

  /** @param {Connection} conn @param {boolean} due whether an ack is due at once */
  #counted(conn, due) {
    const session = this.#session;
    if (conn._replayEnd && conn._last >= conn._replayEnd) {
      conn._replayEnd = 0;
      session._host._notice('replayed');
    }
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

  /** Acks what came, and says how much of a large message has. */
  _answer() {
    const { _usable: conn, _runtime: runtime } = this.#session;
    this._ack();
    this._partTimer._clear();
    conn?._answerPart(runtime.now());
  }

  /** Goes on from the record of the page before. Throws if it makes no sense. @param {import('./records.js').SavedSession} saved */
  _restore({ out, received }) {
    this._sent = Outbox._restore(out);
    this._received = received;
  }

  // ---- connections

  /** Whether the session can go on with this hello. @param {Connection} conn @param {import('./wire.js').Hello} hello */
  _admits(conn, { received, moved, partial: { down = 0, up = 0 } = {} }) {
    // Protocol section 8: after a failover the numbers differ from those that an older connection has used since.
    const outdated = moved === 'failover' && (this._received > conn._stated || this._sent._received > conn._settled);
    return !outdated && (!down || down === conn._held) && this._sent._admits(received, up);
  }

  /** A connection is live: counts go on from its hello. @param {Connection} conn @param {import('./wire.js').Hello} hello */
  _begin(conn, { replay, lost, skipped, partial }) {
    const follow = replay + skipped;
    conn._awaited = follow > 0 || this._sent._unacked;
    conn._last = conn._stated + lost;
    conn._replayEnd = follow && conn._last + follow;
    conn._resumesParts = !!partial;
    conn._from = partial?.down ?? 0;
    this._upload._start(partial?.up ?? 0);
    if (!conn._from) this.#partial = undefined;
    this._received = Math.max(this._received, conn._last);
  }
}
