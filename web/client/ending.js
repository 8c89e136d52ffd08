import * as ReadyState from './readystate.js';
import * as State from './state.js';
import * as MS from './times.js';

/** @typedef {import('./connection.js').Connection} Connection */
/** @typedef {import('./session.js').Session} Session */
/** @typedef {import('./types.js').CloseRequest} CloseRequest */
/** @typedef {import('./types.js').Verdict} Verdict */

/** The close event if no connection could be made in time. */
export const CONNECTION_LOST = { code: 1006, reason: '', wasClean: false };

/** @param {{ code: number, reason: string }} ending */
const clean = ({ code, reason }) => ({ code, reason, wasClean: true });

/** The closing handshake: what the application asked for, and what the gateway decided. */
export class Ending {
  #session;
  /** What the application asked for. @type {CloseRequest | null} */
  _request = null;
  _closeTimer; // for the Close frame

  /** @param {Session} session */
  constructor(session) {
    this.#session = session;
    this._closeTimer = session._alarm(() => this._onNoClose());
  }

  // ---- by the application

  /** @param {number | undefined} code @param {string} reason */
  _close(code, reason) {
    const session = this.#session;
    const page = session._page;
    const readyState = session._readyState;
    if (readyState === ReadyState.CLOSING) return;
    if (readyState === ReadyState.CONNECTING) {
      session._attempts._cancel();
      return session._finish();
    }
    if (page._postponesClose(() => this._close(code, reason))) return;
    this._request = { code: code ?? (reason ? 1000 : 1005), reason };
    if (page._suspended && !page._takeBack()) return session._finish();
    if (session._state === State.DETACHED) session._recovery._shorten();
    session._delivery._pump();
  }

  /** The page is left for good. */
  _leave() {
    const session = this.#session;
    const live = session._live;
    this._request ??= { code: 1001, reason: '' };
    session._delivery._upload._hurry();
    session._delivery._pump();
    if (live && !live._bye) this._sayBye(live);
  }

  /** Says `bye` if the application asked for it, or for another reason. @param {Connection} conn @param {CloseRequest | null} request */
  _sayBye(conn, request = this._request) {
    if (!request) return;
    const session = this.#session;
    const terms = session._terms;
    const { code, reason } = request;
    conn._bye = code === 1005 && terms.answer_ms === undefined ? 1000 : code;
    conn._say('bye', JSON.stringify({ code: conn._bye, reason }));
    session._liveness._sent();
    this._closeTimer._set(MS.byeTimeout + 2 * terms.heartbeat_ms);
  }

  /** A Blob cannot be read: no other message may take its place, so the session ends. */
  _unreadable() {
    const session = this.#session;
    if (session._state === State.ENDED) return;
    if (session._live) this._sayBye(session._live, { code: 1001, reason: 'unreadable Blob' });
    this._request = null;
    session._finish();
  }

  // ---- by the gateway

  /**
   * `end` or `close` on the live connection: the Close frame follows.
   * @param {Connection} conn
   * @param {Verdict} verdict
   */
  _onVerdict(conn, verdict) {
    conn._verdict = verdict;
    if (verdict.retry) this._onNoClose();
    else this._closeTimer._set(MS.closing);
  }

  /** @param {Connection} conn @param {Verdict} verdict */
  _onClose(conn, verdict) {
    verdict.retry ||= verdict.code === 4409 && this.#session._attempts._mayHaveSuperseded(conn);
    return conn._hello ? this._onVerdict(conn, verdict) : this.#onRefusal(conn, verdict);
  }

  /** The Close frame did not come, or is not waited for. */
  _onNoClose() {
    const session = this.#session;
    const verdict = session._live?._verdict;
    if (verdict?.retry === false) return this._finish(verdict);
    session._recovery._disconnected(verdict?.retry_after_ms ?? 0);
  }

  /**
   * `close` in answer to an attempt. Without retry it is about the token and the count that the
   * attempt stated, and about nothing newer. The application gets the code and reason if it asked for a new
   * session; a pre-created session is a resume.
   * @param {Connection} conn
   * @param {Verdict} verdict
   */
  #onRefusal(conn, verdict) {
    const { retry, retry_after_ms: after } = verdict;
    const session = this.#session;
    const recovery = session._recovery;
    const first = session._state === State.CONNECTING;
    conn._close();
    if (!conn._token) {
      session._attempts._foundGateway();
      return session._finish({ ...verdict, wasClean: false });
    }
    const stale = conn._token !== session._terms.token || conn._stated !== session._delivery._received;
    if (first && retry) return session._finish();
    if (!first && (retry || stale)) return recovery._attemptFailed(after);
    if (session._state === State.RELOADED) return recovery._giveUp();
    if (!session._live) return this._finish(verdict);
    recovery._moveRefused();
  }

  /** @param {Verdict} verdict */
  _finish(verdict) {
    this.#session._finish(clean(verdict), verdict._final);
  }

  /**
   * How the session ends for the application. If it asked for the close it gets its own code,
   * unless the game server closed before it heard of that.
   * @param {import('./types.js').CloseDetail} ending
   * @param {boolean} final whether the game server closed
   */
  _detail(ending, final) {
    return this._request && !final ? clean(this._request) : ending;
  }
}
