import { PREFIX, Records } from './records.js';
import { isGecko } from './runtime.js';
import * as State from './state.js';
import * as MS from './times.js';

/** @typedef {import('./records.js').SavedSession} SavedSession */
/** @typedef {import('./session.js').Session} Session */
/** @typedef {import('./types.js').ReseatRuntime} ReseatRuntime */

/**
 * What the life of the page means to the session: it is hidden, frozen, shown again, left or
 * reloaded. With the option `storage` the session goes on in the next page of this tab.
 */
export class PageLife {
  #session;
  /** Whether the page is gone, or in the back/forward cache: the record of the session is in the store. */
  _suspended = false;
  /** @type {Records | null} */
  #records = null;
  #born; // when the session began, by the wall clock
  #leftAt = -Infinity; // when `beforeunload` fired (Firefox)
  /** A close() while the page was unloaded, to be done if the page stays. @type {(() => void) | null} */
  #postponed = null;
  #unloadTimer;

  /** @param {Session} session @param {AbortSignal} signal the end of the session */
  constructor(session, signal) {
    const runtime = session._runtime;
    this.#session = session;
    this.#born = runtime.wall();
    this.#unloadTimer = session._alarm(() => {
      const close = this.#postponed;
      this.#postponed = null;
      close?.();
    });
    const { window, document, navigator } = runtime;
    /** @param {any} target @param {string[]} types */
    const listen = (target, ...types) => {
      for (const type of types)
        target?.addEventListener?.(type, (/** @type {any} */ event) => this.#onEvent(event), { signal });
    };
    // Firefox closes the sockets of a page before `pagehide`, and keeps no page with one in the back/forward cache.
    if (isGecko(navigator)) listen(window, 'beforeunload');
    listen(window, 'online', 'pageshow', 'pagehide');
    listen(document, 'visibilitychange', 'freeze', 'resume');
  }

  /**
   * Coming back, in whatever way, is a reason to ask whether the connection is still alive, or to
   * try again at once.
   * @param {any} event
   */
  #onEvent({ type, persisted }) {
    const session = this.#session;
    const runtime = session._runtime;
    const delivery = session._delivery;
    const live = session._live;
    if (this._suspended) return type === 'pageshow' && this.#onShown();
    if (type === 'beforeunload') {
      this.#leftAt = runtime.now();
      if (!this.#records && live?._usable) live._say('leaving', '');
      return undefined;
    }
    if (type === 'pagehide' && (!persisted || this.#records)) {
      delivery._ack();
      if (!persisted || this.#suspend()) return this._leave();
    }
    const hidden = type === 'visibilitychange' && runtime.document?.visibilityState === 'hidden';
    if (type === 'pagehide' || type === 'freeze' || hidden) return delivery._ack(); // timers may be late from here on
    if (session._lateness > MS.slept) return session._wake();
    if (session._state === State.ATTACHED) return session._liveness._ask();
    if (!live && !session._recovery._scheduledIn) session._recovery._tryAgain();
    return undefined;
  }

  /** The page is left: the session is stored for the next page, or ended in the game. */
  _leave() {
    const session = this.#session;
    if (this.#suspend() || (session._state !== State.ATTACHED && !session._detached)) return;
    if (this._suspended) this._takeBack();
    session._ending._leave();
  }

  /** How long a resume must wait for the page to go: a page that is being left hears nothing of it. */
  get _leavingFor() {
    return this.#session._runtime.now() - this.#leftAt < MS.unload ? MS.unload : 0;
  }

  /**
   * A page that keeps its session over a reload may close its socket as it is unloaded. Only if
   * the page is still there a moment later is the socket closed.
   * @param {() => void} close
   */
  _postponesClose(close) {
    if (!this.#records || !/unload$|^pagehide$/.test(this.#session._runtime.window?.event?.type)) return false;
    this.#postponed = close;
    this.#unloadTimer._set(MS.unload);
    return true;
  }

  get _closing() {
    return this.#postponed !== null;
  }

  // ---- the record

  /** Opens the records of a URL: without its query if that may differ at each attempt. @param {string} url */
  _open(url) {
    const { _store: store, _ticketed: ticketed } = this.#session._plan;
    this.#records = new Records(store, PREFIX + (ticketed ? url.replace(/\?.*/s, '') : url));
  }

  /** The record of the page before, if there is one. */
  _load() {
    const saved = this.#records?._take(this.#session._runtime.wall());
    if (saved) this.#born = saved.born;
    return saved;
  }

  /** Stores the session for the next page of this tab. Returns false if it cannot. */
  #suspend() {
    const session = this.#session;
    const { _state: state, _runtime: runtime, _delivery: delivery } = session;
    const lives = state === State.ATTACHED || state === State.RELOADED || session._detached;
    if (!this.#records || session._ending._request || !lives) return false;
    const out = delivery._sent._save();
    const record = {
      id: session._terms.session,
      born: this.#born,
      saved: runtime.wall(),
      keep: session._recovery._keep,
      said: session._terms,
      received: delivery._received,
      heard: session._liveness._heardWall,
      out,
    };
    if (!out || !this.#records._put(record)) return false;
    this._suspended = true;
    session._clearAlarms();
    return true;
  }

  /** Takes the record out again. Returns false if another page has. */
  _takeBack() {
    this._suspended = false;
    return this.#records?._takeBack(this.#session._terms.session);
  }

  /** The page is shown again: its session goes on, unless another page took it. */
  #onShown() {
    const { _live: live, _attempts: attempts, _recovery: recovery } = this.#session;
    if (!this._takeBack()) return this.#session._finish();
    if (live) return recovery._disconnected(0);
    if (attempts._current) attempts._abandon(attempts._current);
    recovery._restart(true);
  }
}
