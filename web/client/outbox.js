import { RECORD_MAX, packed, unpacked } from './records.js';
import { sizeOf } from './wire.js';

/**
 * The messages that the application sent and the gateway has not acked, numbered from 1.
 * Invariant: acked <= received <= cursor <= last and acked <= received <= handed <= last,
 * where `received` is the newest message that the gateway says it has, `cursor` the newest that was
 * sent on the live connection, and `handed` the newest that was sent on any.
 */
export class Outbox {
  /** Each with its bytes, and those of all messages up to its end. @type {Map<number, { data: string | ArrayBuffer | null, bytes: number, end: number }>} */
  #kept = new Map();
  #last = 0;
  _acked = 0;
  _received = 0;
  #cursor = 0;
  _handed = 0;
  _ackedEnd = 0;
  #end = 0;

  /** Whether anything is not acked. */
  get _unacked() {
    return this._acked < this.#last;
  }

  /** Bytes that were sent on no connection yet. */
  get _waiting() {
    return this.#end - this.#endOf(this._handed);
  }

  /** Whether anything sent on the live connection is not acked. */
  get _owed() {
    return this.#cursor > this._received;
  }

  /** Whether everything was sent on the live connection. */
  get _drained() {
    return this.#cursor === this.#last;
  }

  /** The bytes of all messages up to the end of n, which is acked or kept. @param {number} n */
  #endOf(n) {
    return this.#kept.get(n)?.end ?? this._ackedEnd;
  }

  /**
   * Adds a message; `null` stands for data that is still being read.
   * @param {string | ArrayBuffer | null} data
   * @param {number} bytes
   */
  _add(data, bytes) {
    const entry = { data, bytes, end: (this.#end += bytes) };
    this.#kept.set(++this.#last, entry);
    return entry;
  }

  /**
   * The next message for the live connection; undefined while there is none, it is still being
   * read, or the window is full. One message alone always fits.
   * @param {{ unacked_messages?: number, unacked_bytes?: number }} [limits] of a hello; undefined: none
   */
  _next({ unacked_messages = Infinity, unacked_bytes = Infinity } = {}) {
    const entry = this.#kept.get(this.#cursor + 1);
    if (!entry || entry.data === null) return undefined;
    const unacked = this.#cursor - this._acked;
    if (unacked > 0 && (unacked >= unacked_messages || entry.end - this._ackedEnd > unacked_bytes)) return undefined;
    this._handed = Math.max(this._handed, ++this.#cursor);
    return /** @type {{ data: string | ArrayBuffer, bytes: number }} */ (entry);
  }

  /** The gateway acks all messages up to n. Returns false if it cannot have them. @param {number} n */
  _ack(n) {
    if (n > this.#cursor) return false;
    while (this._acked < n) {
      this._ackedEnd = this.#endOf(++this._acked);
      this.#kept.delete(this._acked);
    }
    this._received = Math.max(this._received, this._acked);
    return true;
  }

  /**
   * Whether n is possible as the `received` of a hello, and part as how much the gateway has of the message after it.
   * @param {number} n
   * @param {number} part
   */
  _admits(n, part) {
    const next = n < this._handed ? this.#kept.get(n + 1) : undefined;
    return n >= this._received && n <= this._handed && (!part || (next && part <= next.bytes));
  }

  /**
   * A new connection begins after message n, which the gateway has. The data of the messages up to n
   * is freed; their sizes are kept, since only an ack frees the window.
   * @param {number} n
   */
  _rewind(n) {
    while (this._received < n) this.#forget(/** @type {any} */ (this.#kept.get(++this._received)));
    this.#cursor = n;
  }

  /** Frees the data of all messages, and keeps their sizes. */
  _drop() {
    this.#kept.forEach(this.#forget);
  }

  /** @param {{ data: any }} entry */
  #forget(entry) {
    entry.data = '';
  }

  /** The outbox for a record; undefined if it is too large, or a Blob is still being read. */
  _save() {
    let size = 0;
    const kept = [...this.#kept.values()].map(({ data, bytes }) => {
      size += data === null ? Infinity : sizeOf(data);
      return [bytes, packed(data ?? '')];
    });
    return size > RECORD_MAX ? undefined : { kept, acked: this._acked, received: this._received, handed: this._handed };
  }

  /**
   * The outbox that `_save` returned. Throws if the data is invalid.
   * @param {any} saved
   */
  static _restore(saved) {
    const out = new Outbox();
    out.#last = out._acked = saved.acked;
    for (const [bytes, data] of saved.kept) out._add(unpacked(data), bytes);
    out._received = out.#cursor = saved.received;
    out._handed = saved.handed;
    return out;
  }
}
