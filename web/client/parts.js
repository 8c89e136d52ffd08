const utf8 = new TextDecoder('utf-8', { ignoreBOM: true }); // as in a WebSocket, a byte order mark is text

/** A large message that arrives in parts (protocol section 3.1). */
export class Parts {
  #left;
  #text;
  /** @type {Uint8Array<ArrayBuffer>} */
  #bytes;

  /** @param {{ bytes: number, text: boolean }} announced */
  constructor({ bytes, text }) {
    this.#left = bytes;
    this.#text = text;
    this.#bytes = new Uint8Array(bytes);
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
    this.#bytes.set(part, this.#bytes.length - this.#left); // throws if it is too long
    this.#left -= part.length;
    if (this.#left > 0) return undefined;
    return this.#text ? utf8.decode(this.#bytes) : this.#bytes.buffer;
  }
}
