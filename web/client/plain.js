import { close, listen } from './connection.js';
import * as ReadyState from './readystate.js';

/** @typedef {import('./types.js').Host} Host */
/** @typedef {import('./types.js').Message} Message */

/**
 * An open connection to a server that does not know reseat.v1: it replaces the Session, and has
 * its members.
 */
export class Plain {
  _id = null;
  _detached = false;
  _reloaded = false;
  #transport;
  #refused = 0; // bytes given to send() after the end
  #over = false;

  /** @param {any} transport @param {Host} host */
  constructor(transport, host) {
    this.#transport = transport;
    let failed = false;
    listen(transport, 'message', (event) => this.#over || host._message(event.data));
    listen(transport, 'error', () => (failed = true));
    listen(transport, 'close', ({ code = 1006, reason = '', wasClean = false }) => {
      if (this.#over) return;
      this.#over = true;
      host._closed({ code, reason, wasClean }, failed);
    });
  }

  get _protocol() {
    return `${this.#transport.protocol ?? ''}`;
  }

  get _extensions() {
    return `${this.#transport.extensions ?? ''}`;
  }

  /** @returns {1 | 2} CLOSED comes with the event */
  get _readyState() {
    return this.#over || this.#transport.readyState >= ReadyState.CLOSING ? ReadyState.CLOSING : ReadyState.OPEN;
  }

  get _bufferedAmount() {
    return this.#refused + (this.#transport.bufferedAmount || 0);
  }

  /** @param {Message} data @param {number} bytes */
  _send(data, bytes) {
    if (this._readyState === ReadyState.OPEN) this.#transport.send(data);
    else this.#refused += bytes;
  }

  /** @param {number | undefined} code @param {string} reason */
  _close(code, reason) {
    if (code || reason) close(this.#transport, code ?? 1000, reason);
    else close(this.#transport);
  }
}
