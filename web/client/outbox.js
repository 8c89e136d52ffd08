import { RECORD_MAX, packed, unpacked } from './records.js';
import { sizeOf } from './wire.js';

/**
 * What the application sent and the gateway has not acked. Messages are numbered from 1.
 * Invariant: acked <= received <= cursor <= last and acked <= received <= handed <= last,
 * where `received` is what the gateway said it holds, `cursor` the newest number given to
 * the present connection, and `handed` the newest ever given to any.
 */
export class Outbox {
  /** @type {Map<number, { data: string | ArrayBuffer | null, bytes: number }>} */
  #kept = new Map();
  #last = 0;
  #acked = 0;
  #received = 0;
  #cursor = 0;
  #handed = 0;
  #inFlight = 0; // bytes of (acked, cursor]
  #waiting = 0; // bytes of (handed, last]

  /** The newest number that is acked. */
  get acked() {
    return this.#acked;
  }

  /** Whether anything is not acked. */
  get unacked() {
    return this.#acked < this.#last;
  }

  /** Bytes that no connection was given yet. */
  get waiting() {
    return this.#waiting;
  }

  /** Whether the present connection was given anything that is not acked. */
  get owed() {
    return this.#cursor > this.#received;
  }

  /** Whether the present connection was given everything. */
  get drained() {
    return this.#cursor === this.#last;
  }

  /**
   * Takes a message; `null` stands for data that is still being read.
   * @param {string | ArrayBuffer | null} data
   * @param {number} bytes
   */
  add(data, bytes) {
    const entry = { data, bytes };
    this.#kept.set(++this.#last, entry);
    this.#waiting += bytes;
    return entry;
  }

  /**
   * The next message for the present connection, or undefined while there is none, it is
   * still being read, or the window is full. One message alone always fits.
   * @param {{ messages: number, bytes: number }} window
   */
  next(window) {
    const entry = this.#kept.get(this.#cursor + 1);
    if (!entry || entry.data === null) return undefined;
    const unacked = this.#cursor - this.#acked;
    if (unacked > 0 && (unacked >= window.messages || this.#inFlight + entry.bytes > window.bytes)) return undefined;
    this.#cursor++;
    this.#inFlight += entry.bytes;
    if (this.#cursor > this.#handed) {
      this.#handed = this.#cursor;
      this.#waiting -= entry.bytes;
    }
    return entry.data;
  }

  /** The gateway has taken in everything up to n. Returns false where that cannot be. @param {number} n */
  ack(n) {
    if (n > this.#cursor) return false;
    while (this.#acked < n) {
      this.#inFlight -= this.#kept.get(++this.#acked)?.bytes ?? 0;
      this.#kept.delete(this.#acked);
    }
    this.#received = Math.max(this.#received, this.#acked);
    return true;
  }

  /** As if all that the connection was given were acked: a plain server acks nothing. */
  settle() {
    this.ack(this.#cursor);
  }

  /** Whether a hello may say that it has received n. @param {number} n */
  admits(n) {
    return n >= this.#received && n <= this.#handed;
  }

  /**
   * A new connection begins after message n, which the gateway holds: the data up to there
   * is forgotten, the sizes are kept, since only an ack frees the window.
   * @param {number} n
   */
  rewind(n) {
    while (this.#received < n) {
      const entry = this.#kept.get(++this.#received);
      if (entry) entry.data = '';
    }
    this.#cursor = n;
    this.#inFlight = 0;
    for (let i = this.#acked + 1; i <= n; i++) this.#inFlight += this.#kept.get(i)?.bytes ?? 0;
  }

  /** Forgets the data of all messages, and of none its size. */
  drop() {
    this.#kept.clear();
  }

  /** All of it for a record; undefined where that is too large, or a Blob is still being read. */
  save() {
    const entries = [...this.#kept.values()];
    const total = entries.reduce((sum, { data }) => sum + (data === null ? Infinity : sizeOf(data)), 0);
    if (total > RECORD_MAX) return undefined;
    const kept = entries.map(({ data, bytes }) => [bytes, packed(data ?? '')]);
    return { kept, acked: this.#acked, received: this.#received, handed: this.#handed };
  }

  /**
   * What `save` wrote; undefined where it makes no sense.
   * @param {any} saved
   */
  static restore(saved) {
    try {
      const out = new Outbox();
      out.#last = out.#acked = saved.acked;
      for (const [bytes, data] of saved.kept) out.add(unpacked(data), bytes);
      out.#received = out.#cursor = saved.received;
      out.#handed = saved.handed;
      out.#waiting = 0;
      for (let i = out.#handed + 1; i <= out.#last; i++) out.#waiting += out.#kept.get(i)?.bytes ?? 0;
      return out;
    } catch {
      return undefined;
    }
  }
}
