import { close, dial, listen } from './connection.js';
import * as ReadyState from './readystate.js';

/** @typedef {import('./types.js').Plan} Plan */
/** @typedef {import('./types.js').Host} Host */
/** @typedef {import('./types.js').Message} Message */

/**
 * In a session's place, towards a server that does not know reseat.v1: an ordinary WebSocket,
 * with the members of Session.
 */
export class Plain {
  _id = null;
  _detached = false;
  _reloaded = false;
  _protocol = '';
  _extensions = '';
  #transport;
  #host;
  #refused = 0; // bytes given to send() after the end
  #opened = false;
  #over = false;

  /** @param {Plan} plan @param {Host} host @param {any} [open] a transport that is open already */
  constructor(plan, host, open) {
    const transport = open ?? dial(plan._Transport, plan._url, plan._protocols);
    this.#transport = transport;
    this.#host = host;
    let failed = false;
    const opened = () => {
      if (this.#over) return;
      this.#opened = true;
      this._protocol = `${transport.protocol ?? ''}`;
      this._extensions = `${transport.extensions ?? ''}`;
      plan._runtime.trace('plain');
      host._opened();
    };
    listen(transport, 'message', (event) => this.#over || host._message(event.data));
    listen(transport, 'error', () => (failed = true));
    listen(transport, 'close', ({ code = 1006, reason = '', wasClean = false }) =>
      this.#end({ code, reason, wasClean }, failed),
    );
    if (open) opened();
    else listen(transport, 'open', opened);
  }

  /** @returns {0 | 1 | 2} CLOSED comes with the event */
  get _readyState() {
    if (this.#over || this.#transport.readyState >= ReadyState.CLOSING) return ReadyState.CLOSING;
    return this.#opened ? ReadyState.OPEN : ReadyState.CONNECTING;
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
    const readyState = this._readyState;
    if (code || reason) close(this.#transport, code ?? 1000, reason);
    else close(this.#transport);
    if (readyState === ReadyState.CONNECTING) this.#end({ code: 1006, reason: '', wasClean: false }, true);
  }

  /** @param {import('./types.js').CloseDetail} detail @param {boolean} failed */
  #end(detail, failed) {
    if (this.#over) return;
    this.#over = true;
    this.#host._closed(detail, failed);
  }
}
