import { isGecko } from './runtime.js';

/** @typedef {import('./types.js').ReseatRuntime} ReseatRuntime */

// What a probe says of the way to the gateway.
export const NOBODY = 0; // no answer
export const SOMEBODY = 1; // something on the way answers HTTP
export const GATEWAY = 2;
export const FORBIDDEN = 3; // the page's Content-Security-Policy allows no such request

/** Node, Deno and Bun delay nothing. @param {ReseatRuntime} runtime */
export const isBrowser = ({ navigator }) => /^Mozilla/.test(navigator?.userAgent);

/**
 * Asks over HTTP whether the gateway can be reached (protocol section 2, the probe).
 *
 * A browser delays WebSockets to a host where others have failed, and page and server are told
 * nothing. Firefox (RFC 6455 section 7.2.3): 0.2 to 0.4 s after the first failure, half as much
 * again after each further one, up to 60 s, for all tabs; an attempt that the page gives up
 * is a failure, and only one at a time connects. Chromium: up to 5 s after some 16 failures in
 * 3 to 6 minutes. HTTP requests are not delayed.
 */
export class Reach {
  #runtime;
  #forbidden = false;
  #asked = '?'; // the URL of the newest probe, without its query
  /** @type {AbortController | undefined} */
  #under; // the probe under way

  /**
   * @param {ReseatRuntime} runtime
   * @param {AbortSignal} signal the end
   */
  constructor(runtime, signal) {
    this.#runtime = runtime;
    const forbid = (/** @type {any} */ { blockedURI }) => (this.#forbidden ||= `${blockedURI}`.startsWith(this.#asked));
    runtime.window?.addEventListener?.('securitypolicyviolation', forbid, { signal });
    signal.addEventListener('abort', () => this._stop());
    this._isGecko = isGecko(runtime.navigator);
  }

  /**
   * Whether the page's Content-Security-Policy lets it ask, as far as is known.
   */
  get _isAllowed() {
    return !this.#forbidden;
  }

  /**
   * Asks, and reports the answer unless `_stop` comes first.
   * @param {string} url where the WebSocket connects to
   * @param {(answer: number) => void} report
   */
  async _ask(url, report) {
    this._stop();
    const { signal } = (this.#under = new AbortController());
    this.#asked = url.replace(/^ws/, 'http').replace(/\?.*/s, '');
    let answer = NOBODY;
    // A proxy in front that refuses the probe lets no page read its answer; that it answers is something.
    for (const mode of /** @type {const} */ (['cors', 'no-cors'])) {
      try {
        const { status } = await this.#runtime.fetch(`${this.#asked}?reseat.alive`, {
          mode,
          signal,
          cache: 'no-store',
          credentials: 'omit',
        });
        answer = status === 204 ? GATEWAY : SOMEBODY;
        break;
      } catch {
        if (signal.aborted) return; // otherwise there was no answer, or none for this page
      }
    }
    if (!signal.aborted) report(this.#forbidden ? FORBIDDEN : answer);
  }

  /** Ends the probe under way. */
  _stop() {
    this.#under?.abort();
    this.#under = undefined;
  }
}
