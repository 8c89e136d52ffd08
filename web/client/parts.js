/** @typedef {{ bytes: number, text: boolean, from: number }} Announced the argument of `parts` */

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { ignoreBOM: true }); // as in a WebSocket, a byte order mark is text

/** A large message that arrives in parts (protocol section 3.1). It outlives its connection. */
export class Parts {
  _held;
  #text;
  /** @type {Uint8Array<ArrayBuffer>} */
  #bytes;

  /** @param {Announced} announced */
  constructor({ bytes, text, from }) {
    this._held = from;
    this.#text = text;
    this.#bytes = new Uint8Array(bytes);
  }

  /** Goes on as announced. Returns false if that is another message, or begins behind what is held. @param {Announced} announced */
  _continue({ bytes, text, from }) {
    const same = bytes === this.#bytes.length && text === this.#text && from <= this._held;
    if (same) this._held = from;
    return same;
  }

  /**
   * Takes the next part.
   * @param {any} data
   * @returns {string | ArrayBuffer | undefined} the message after its last part
   * @throws if data is no part of it
   */
  _add(data) {
    const part = new Uint8Array(data);
    if (typeof data === 'string' || part.length === 0) throw new Error();
    this.#bytes.set(part, this._held); // throws if it is too long
    this._held += part.length;
    if (this._held < this.#bytes.length) return undefined;
    return this.#text ? decoder.decode(this.#bytes) : this.#bytes.buffer;
  }
}

const NOTHING = new Uint8Array(0);

const FIRST_WINDOW = 8 * 1024;
const MIN_WINDOW = 2 * 1024;
const MAX_WINDOW = 1024 * 1024;

/**
 * The large messages that are sent in parts, one after another. What the gateway has not answered by
 * `part` stays within a window, which is as much as the line takes in MS.partWindow and two round trips:
 * no ping, ack or answer waits long behind it.
 */
export class Upload {
  #from = 0; // where the first message on this connection begins: the gateway has what is before
  #bytes = NOTHING;
  #sent = 0; // of these
  #answered = 0; // of those
  #window = FIRST_WINDOW; // until it is measured
  #full = 0; // the window was full when so much was sent, 0 if it was not since it was last measured,
  #fullAt = 0; // then,
  #before = 0; // and so much was answered before

  /** A connection begins. @param {number} from how much of the first message the gateway has */
  _start(from) {
    this.#from = from;
    this.#finish();
  }

  #finish() {
    this.#bytes = NOTHING;
    this.#sent = 0;
  }

  /** Bytes of the message in progress that were not sent. */
  get _left() {
    return this.#bytes.length - this.#sent;
  }

  /**
   * Begins a message, if it is larger than a part.
   * @param {string | ArrayBuffer} data as it stands on the wire
   * @param {number} size the max size of a part
   * @returns {Announced | undefined} what to announce
   */
  _begin(data, size) {
    const text = typeof data === 'string';
    const payload = text ? encoder.encode(data) : new Uint8Array(data);
    if (payload.length <= size) return undefined;
    const from = this.#from;
    this.#from = 0;
    this.#bytes = payload;
    this.#sent = this.#answered = from;
    this.#full = 0;
    return { bytes: payload.length, text, from };
  }

  /**
   * The next part; undefined where there is none, or the window is full.
   * @param {number} max its max size
   * @param {number} t
   */
  _next(max, t) {
    const begin = this.#sent;
    const bytes = this.#bytes.length;
    const size = bytes > this.#window ? Math.min(this.#window >> 3, max) : max; // an answer need not wait for much
    const end = Math.min(begin + size, bytes);
    const room = this.#answered + this.#window;
    if (begin === end || (begin > this.#answered && end > room)) return undefined;
    const part = this.#bytes.slice(begin, end).buffer;
    this.#sent = end;
    const fills = Math.min(end + size, bytes) > room && !this.#full;
    if (fills) [this.#full, this.#fullAt, this.#before] = [end, t, this.#answered];
    this._asks = fills && this.#window === FIRST_WINDOW; // whether a ping must follow: the first answer comes before its pong
    if (!this._left) this.#finish();
    return part;
  }

  /**
   * The gateway has n bytes of the message in progress.
   * @param {number} n
   * @param {number} t
   * @param {number} within what time the line is to take a window
   * @param {boolean} keeps the window does not become smaller
   */
  _onAnswer(n, t, within, keeps) {
    if (n <= this.#answered || n > this.#sent) return; // of the message before
    this.#answered = n;
    const ms = t - this.#fullAt;
    if (!this.#full || (n < this.#full && ms < within)) return;
    const fits = ((n - this.#before) * within) / ms; // 0: the max
    this.#window = Math.min(Math.max(fits, keeps ? this.#window : MIN_WINDOW), 4 * this.#window, MAX_WINDOW);
    this.#full = 0;
  }

  /** The page is left: what is left of the message goes out at once. */
  _hurry() {
    this.#window = Infinity;
  }
}
