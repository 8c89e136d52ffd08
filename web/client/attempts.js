import { Connection, dial, listen, sayByeAfterHello } from './connection.js';
import * as State from './state.js';
import * as MS from './times.js';
import { moduleOrigin, originOf } from './url.js';
import { VERSION, isToken } from './wire.js';

/** @typedef {import('./address.js').Address} Address */
/** @typedef {import('./session.js').Session} Session */

/**
 * The attempts of a session to connect, one at a time: the offer, and the timeouts of the 101 and
 * of hello. An attempt ends with hello, which makes it the live connection, with a refusal, or
 * without either: then it is abandoned.
 */
export class Attempts {
  #session;
  /** The attempt in progress. @type {Connection | null} */
  _current = null;
  _url = ''; // of the newest attempt
  #timer;
  #hellos = 0; // how many connections of this session had a hello
  // The value of #hellos when an attempt was last abandoned. It may have reached the gateway, or may reach it later.
  #abandonedAt = -2; // never

  /** @param {Session} session */
  constructor(session) {
    this.#session = session;
    this.#timer = session._alarm((late) => this.#onTimeout(late), 2);
  }

  /**
   * Calls `use` with the address of an attempt, at once or later.
   * @param {(address: Address) => void} use
   * @param {() => void} fail
   */
  _address(use, fail) {
    const address = this.#session._plan._address();
    if (address instanceof Promise) address.then(use).catch(fail);
    else use(address);
  }

  /**
   * Begins an attempt. Throws if the URL is fixed and the browser allows no connection to it.
   * @param {boolean} bare whether it makes no offer of reseat.v1
   */
  _connect(bare = this.#session._plan._bare) {
    const { _runtime: runtime, _terms: terms, _delivery: delivery } = this.#session;
    const conn = new Connection(runtime.now(), terms.token, delivery);
    this._current = conn;
    this._address(
      (address) => conn === this._current && this.#open(conn, address, bare),
      () => conn === this._current && this._fail(conn),
    );
  }

  /** Begins an attempt to resume. Throws as _connect does. */
  _resume() {
    this.#timer._set(MS.connectMax); // to learn the address
    this._connect();
  }

  /** Protocol section 2: the application's subprotocols first. @param {Connection} conn @param {Address} address @param {boolean} bare */
  #open(conn, { url, protocols }, bare) {
    const session = this.#session;
    const { _plan: plan, _terms: terms } = session;
    const { route } = terms;
    const offer = [...protocols.filter((name) => !name.startsWith('reseat.')), VERSION, 'reseat.parts', 'reseat.skip'];
    offer.push(`reseat.partial.${conn._held}`);
    if (conn._token) offer.push(`reseat.token.${conn._token}`, `reseat.received.${conn._stated}`);
    else if (plan._refusals) offer.push('reseat.refusals');
    offer.push(`reseat.settled.${conn._settled}.${session._delivery._sent._handed}`);
    if (isToken(route)) offer.push(`reseat.route.${route}`);
    this._url = url;
    session._host._connects(url);
    conn._protocols = protocols;
    conn._bare = bare;
    const transport = dial(plan._Transport, url, bare ? protocols : offer);
    conn._transport = transport;
    conn._since = session._runtime.now();
    if (session._state !== State.CONNECTING) this.#timer._set(session._recovery._attemptTimeout);
    /** @param {string} type @param {(event: any) => void} handle */
    const on = (type, handle) =>
      listen(transport, type, (event) => (conn === session._live || conn === this._current) && handle(event));
    on('open', () => this.#onOpen(conn));
    on('message', (event) => session._onMessage(conn, event.data));
    on('close', (event) => session._onClose(conn, event));
  }

  /** @param {Connection} conn */
  #onOpen(conn) {
    const session = this.#session;
    const transport = conn._transport;
    const { protocol = VERSION } = transport;
    const resumes = session._terms.token;
    if (conn._bare || protocol !== VERSION) {
      // A server that does not know reseat.v1 chose one of the application's subprotocols, or none. With none,
      // Chromium fails the handshake; Firefox and WebKit open the connection.
      if (!conn._bare && (!protocol || session._state !== State.CONNECTING || resumes || !session._plan._fallback))
        return this._fail(conn);
      this._current = null;
      return session._replaceBy(() => session._host._plain(transport));
    }
    conn._opened = true;
    session._liveness._opened(session._runtime.now() - conn._since);
    this.#timer._set(resumes ? MS.resumeHello : MS.firstHello);
  }

  /** The attempt has its hello. @param {Connection} conn */
  _succeed(conn) {
    this._end();
    conn._hello = ++this.#hellos;
  }

  /** The attempt is over. */
  _end() {
    this._current = null;
    this.#timer._clear();
  }

  /** The attempt is over, and it is unknown whether the gateway saw it. @param {Connection} conn */
  _abandon(conn) {
    this.#abandonedAt = this.#hellos;
    this._end();
    conn._close();
  }

  /**
   * The attempt failed, and it is unknown whether the gateway saw it.
   * @param {Connection} conn
   * @param {boolean} plain whether a server without Reseat would explain it
   */
  _fail(conn, plain = !conn._opened) {
    const session = this.#session;
    this._abandon(conn);
    if (session._state !== State.CONNECTING) return session._recovery._attemptFailed(0);
    if (!plain || conn._bare || !this.#mayFallBack()) return session._finish();
    try {
      this._connect(true);
    } catch {
      session._finish();
    }
  }

  /** The application closes the socket before the first hello. A pre-created session stays for others that have its token. */
  _cancel() {
    const { _transport: transport, _bare: bare } = this._current ?? {};
    if (transport && !bare && !this.#session._plan._token) {
      this._current = null;
      sayByeAfterHello(transport, this.#session._runtime);
    }
  }

  /** @param {boolean} late */
  #onTimeout(late) {
    const session = this.#session;
    const conn = this._current;
    if (!conn) return;
    const first = session._state === State.CONNECTING;
    if (!late || (!first && session._live)) this._fail(conn, true);
    else if (first) this.#timer._set(MS.firstHello); // its hello may have come while the page slept
    // Otherwise waking has begun another attempt.
  }

  /** The origin has a gateway: from now on no attempt is made there without an offer. */
  _foundGateway() {
    this.#session._runtime.gateways.add(originOf(this._url));
  }

  /** Whether an attempt without an offer is allowed: only if nothing says that there is a gateway. */
  #mayFallBack() {
    const { _plan: plan, _terms: terms, _runtime: runtime } = this.#session;
    if (!this._url || !plan._fallback || terms.token) return false;
    const origin = originOf(this._url);
    return !runtime.gateways.has(origin) && moduleOrigin(runtime.module) !== origin;
  }

  /**
   * Whether an attempt of this session may have caused a 4409 on conn: one in progress, or one
   * that was abandoned since the hello before the newest (protocol section 6). That holds for a
   * connection that waits for its hello as well: it is unknown whether the gateway received
   * what this side sent after the newest hello, which supersedes older generations.
   * @param {Connection} conn
   */
  _mayHaveSuperseded(conn) {
    return (this._current && this._current !== conn) || this.#abandonedAt >= this.#hellos - 1;
  }
}
