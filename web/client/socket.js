import { addresses } from './address.js';
import { incoming, outgoing } from './data.js';
import { announce, closeEvent, ownEvent } from './events.js';
import { keepaliveOf } from './keepalive.js';
import { Plain } from './plain.js';
import * as ReadyState from './readystate.js';
import { storeOf } from './records.js';
import { NativeWebSocket, platformWebSocket, runtimeOf, transportOf } from './runtime.js';
import { Session } from './session.js';
import * as MS from './times.js';
import { originOf, syntaxError, webSocketURL } from './url.js';
import { isToken, utf8Length } from './wire.js';

/** @typedef {import('./types.js').Host} Host */

/** An internal option: a socket that makes no offer. */
export const PLAIN_ONLY = Symbol('reseat.plain');

/**
 * A drop-in replacement for `WebSocket` whose session survives its connections. reseat.d.ts
 * documents its members. With a server without Reseat it is an ordinary WebSocket.
 */
export class ReseatSocket extends EventTarget {
  #url = ''; // until a function has returned it
  #origin = '';
  /** @type {Session | Plain} */
  #session;
  /** @type {BinaryType} */
  #binaryType = 'blob';
  #closed = false; // whether `close` has been dispatched
  /** @type {Map<string, { value: any, listener: (event: Event) => void }>} */
  #handlers = new Map();
  /** @type {(() => any)[]} */
  #events = [];
  #busy = false;

  /**
   * @param {import('../reseat.js').URLSource} url
   * @param {import('../reseat.js').ProtocolsSource} [protocols]
   * @param {import('./types.js').ReseatOptions} [options]
   */
  constructor(url, protocols = undefined, options = undefined) {
    if (arguments.length < 1) throw new TypeError('no URL');
    super();
    const given = /** @type {any} */ (Object(options));
    const { token } = given;
    const runtime = runtimeOf(given.runtime);
    const _ticketed = typeof url === 'function';
    if (!_ticketed) this.#url = webSocketURL(url, runtime.base);
    const _address = addresses(url, protocols, given.address, runtime.base);
    const bare = !!given[PLAIN_ONLY];
    if (token !== undefined && token !== null && !isToken(token)) throw syntaxError('invalid token');
    const plan = {
      _address,
      _ticketed,
      _bare: bare,
      _giveUpAfter: given.giveUpAfter ?? MS.giveUp,
      _token: bare ? '' : (token ?? ''),
      _fallback: given.fallback !== false,
      _refusals: given.refusals !== false,
      _keepalive: keepaliveOf(given.keepalive),
      _store: bare ? null : storeOf(given.storage),
      _Transport: transportOf(given, NativeWebSocket ?? platformWebSocket()),
      _runtime: runtime,
    };
    const host = this.#host(plan);
    this.#session = this.#call(() => new Session(plan, host, true));
  }

  /** Survives minification. */
  static get name() {
    return 'ReseatSocket';
  }

  get url() {
    return this.#url;
  }

  /** @returns {0 | 1 | 2 | 3} */
  get readyState() {
    if (this.#closed) return ReadyState.CLOSED;
    return this.#session._readyState;
  }

  get bufferedAmount() {
    return this.#session._bufferedAmount;
  }

  get protocol() {
    return this.#session._protocol;
  }

  get extensions() {
    return this.#session._extensions;
  }

  get session() {
    return this.#session._id;
  }

  get detached() {
    return this.#session._detached;
  }

  get resumed() {
    return this.#session._reloaded;
  }

  get binaryType() {
    return this.#binaryType;
  }

  set binaryType(type) {
    this.#binaryType = type === 'blob' || type === 'arraybuffer' ? type : this.#binaryType;
  }

  /**
   * @param {string | ArrayBufferLike | Blob | ArrayBufferView} data
   * @returns {void}
   */
  send(data) {
    if (arguments.length < 1) throw new TypeError('no message');
    if (this.readyState === ReadyState.CONNECTING) throw new DOMException('still connecting', 'InvalidStateError');
    const message = outgoing(data);
    this.#call(() => this.#session._send(message.data, message.bytes));
  }

  /**
   * @param {number} [code]
   * @param {string} [reason]
   * @returns {void}
   */
  close(code = undefined, reason = '') {
    const given = Number(code);
    const number = code === undefined ? code : Math.round(given) - Number(given % 2 === 0.5); // as WebIDL's [Clamp] does for valid numbers
    const text = `${reason}`.replace(/\p{Cs}/gu, '\ufffd');
    if (!(number === undefined || number === 1000 || (number >= 3000 && number <= 4999))) {
      throw new DOMException(`invalid code: ${number}`, 'InvalidAccessError');
    }
    if (utf8Length(text) > 123) throw syntaxError('reason: more than 123 bytes');
    this.#call(() => this.#session._close(number, text));
  }

  /**
   * Turns the calls of the session into events.
   * @param {import('./types.js').Plan} plan
   * @returns {Host}
   */
  #host(plan) {
    /** @type {Host} */
    const host = {
      _opened: () => this.#emit(() => new Event('open')),
      _message: (data, origin = this.#origin) =>
        this.#emit(() => new MessageEvent('message', { data: incoming(data, this.#binaryType), origin })),
      _notice: (type, detail = {}) => this.#emit(() => ownEvent(type, detail)),
      _closed: (detail, error = !detail.wasClean) => {
        const last = (/** @type {() => Event} */ event) => this.#emit(() => ((this.#closed = true), event()));
        if (error) last(() => new Event('error'));
        last(() => closeEvent(detail));
      },
      _connects: (url) => {
        this.#origin = originOf(url);
        if (plan._ticketed) this.#url = url;
      },
      _plain: (transport) => {
        this.#session = new Plain(transport, host);
        host._opened(); // not before: a listener of `open` may send
      },
      _anew: () => (this.#session = new Session(plan, host, false)),
    };
    return host;
  }

  /**
   * Dispatches an event, in order: never within a call or an event listener of the application.
   * @param {() => any} event
   */
  #emit(event) {
    this.#events.push(event);
    this.#dispatch();
  }

  #dispatch() {
    if (this.#busy) return;
    this.#call(() => {
      for (let next; (next = this.#events.shift());) {
        const event = next();
        this.dispatchEvent(event);
        if (event.detail) announce(this, event);
      }
    });
  }

  /**
   * Runs a call of the application; the events that it causes follow it.
   * @template T
   * @param {() => T} run
   */
  #call(run) {
    const outer = this.#busy;
    this.#busy = true;
    try {
      return run();
    } finally {
      this.#busy = outer;
      if (!outer && this.#events.length > 0) queueMicrotask(() => this.#dispatch());
    }
  }

  // As WebIDL has them: constants on both the class and its instances, all members enumerable.
  static {
    const { prototype } = this;
    for (const type of ['open', 'message', 'error', 'close']) {
      // An event handler IDL attribute (HTML, section 8.1.8.1): it keeps the place of its first
      // setting among the listeners until it is set to null.
      Object.defineProperty(prototype, `on${type}`, {
        /** @this {ReseatSocket} */
        get() {
          return this.#handlers.get(type)?.value ?? null;
        },
        /** @this {ReseatSocket} */
        set(value) {
          const handler = this.#handlers.get(type);
          if (Object(value) !== value) {
            if (handler) this.removeEventListener(type, handler.listener);
            this.#handlers.delete(type);
          } else if (handler) {
            handler.value = value;
          } else {
            const added = {
              value,
              listener: (/** @type {Event} */ event) =>
                typeof added.value === 'function' && added.value.call(this, event),
            };
            this.#handlers.set(type, added);
            this.addEventListener(type, added.listener);
          }
        },
        configurable: true,
      });
    }
    for (const name of Object.getOwnPropertyNames(prototype)) {
      if (name !== 'constructor') Object.defineProperty(prototype, name, { enumerable: true });
    }
    for (const [value, name] of ['CONNECTING', 'OPEN', 'CLOSING', 'CLOSED'].entries()) {
      for (const holder of [this, prototype]) Object.defineProperty(holder, name, { value, enumerable: true });
    }
    Object.defineProperty(prototype, Symbol.toStringTag, { value: 'WebSocket', configurable: true });
  }
}
