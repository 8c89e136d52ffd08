import { RECORD_MAX, packed, unpacked } from './records.js';
import { sizeOf } from './wire.js';

/**
 * What the application sent and the gateway has not acked. Messages are numbered from 1.
 * Invariant: acked <= received <= cursor <= last and acked <= received <= handed <= last,
 * where `received` is what the gateway said it holds, `cursor` the newest number given to
 * the present connection, and `handed` the newest ever given to any.
 */
export class Outbox {
  /** Each with the bytes of all messages up to its end. @type {Map<number, { data: string | ArrayBuffer | null, end: number }>} */
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

  /** Bytes that no connection was given yet. */
  get _waiting() {
    return this.#end - this.#endOf(this._handed);
  }

  /** Whether the present connection was given anything that is not acked. */
  get _owed() {
    return this.#cursor > this._received;
  }

  /** Whether the present connection was given everything. */
  get _drained() {
    return this.#cursor === this.#last;
  }

  /** The bytes of all messages up to the end of n, which is acked or kept. @param {number} n */
  #endOf(n) {
    return this.#kept.get(n)?.end ?? this._ackedEnd;
  }

  /**
   * Takes a message; `null` stands for data that is still being read.
   * @param {string | ArrayBuffer | null} data
   * @param {number} bytes
   */
  _add(data, bytes) {
    const entry = { data, end: (this.#end += bytes) };
    this.#kept.set(++this.#last, entry);
    return entry;
  }

  /**
   * The next message for the present connection, or undefined while there is none, it is
   * still being read, or the window is full. One message alone always fits.
   * @param {{ unacked_messages?: number, unacked_bytes?: number }} [limits] of a hello; undefined: none
   */
  _next({ unacked_messages = Infinity, unacked_bytes = Infinity } = {}) {
    const entry = this.#kept.get(this.#cursor + 1);
    if (!entry || entry.data === null) return undefined;
    const unacked = this.#cursor - this._acked;
    if (unacked > 0 && (unacked >= unacked_messages || entry.end - this._ackedEnd > unacked_bytes)) return undefined;
    this._handed = Math.max(this._handed, ++this.#cursor);
    return entry.data;
  }

  /** The gateway has taken in everything up to n. Returns false where that cannot be. @param {number} n */
  _ack(n) {
    if (n > this.#cursor) return false;
    while (this._acked < n) {
      this._ackedEnd = this.#endOf(++this._acked);
      this.#kept.delete(this._acked);
    }
    this._received = Math.max(this._received, this._acked);
    return true;
  }

  /** Whether a hello may say that it has received n. @param {number} n */
  _admits(n) {
    return n >= this._received && n <= this._handed;
  }

  /**
   * A new connection begins after message n, which the gateway holds: the data up to there
   * is forgotten, the sizes are kept, since only an ack frees the window.
   * @param {number} n
   */
  _rewind(n) {
    while (this._received < n) this.#forget(/** @type {any} */ (this.#kept.get(++this._received)));
    this.#cursor = n;
  }

  /** Forgets the data of all messages, and of none its size. */
  _drop() {
    this.#kept.forEach(this.#forget);
  }

  /** @param {{ data: any }} entry */
  #forget(entry) {
    entry.data = '';
  }

  /** All of it for a record; undefined where that is too large, or a Blob is still being read. */
  _save() {
    let before = this._ackedEnd;
    let size = 0;
    const kept = [...this.#kept.values()].map(({ data, end }) => {
      size += data === null ? Infinity : sizeOf(data);
      return [-before + (before = end), packed(data ?? '')];
    });
    return size > RECORD_MAX ? undefined : { kept, acked: this._acked, received: this._received, handed: this._handed };
  }

  /**
   * The outbox that `save` wrote. Throws where that makes no sense.
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
