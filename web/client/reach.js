import * as Answer from './answer.js';

/** @typedef {import('./types.js').ReseatRuntime} ReseatRuntime */

/** Node, Deno and Bun delay nothing. @param {ReseatRuntime} runtime */
export const isBrowser = ({ navigator }) => /^Mozilla/.test(navigator?.userAgent);

/**
 * Asks over HTTP whether the gateway can be reached (protocol section 2, the probe).
 *
 * A browser delays WebSockets to a host to which others have failed, without a sign to page or server. Firefox (RFC 6455 section 7.2.3): 0.2 to 0.4 s after the first failure, half as much
 * again after each further one, up to 60 s, for all tabs; an attempt that the page closes
 * is a failure, and only one at a time connects. Chromium: up to 5 s after some 16 failures in
 * 3 to 6 minutes. HTTP requests are not delayed.
 */
export class Reach {
  #runtime;
  /** Whether the page's Content-Security-Policy is known to allow no probes. */
  _forbidden = false;
  #asked = '?'; // the URL of the newest probe, without its query
  /** @type {AbortController | undefined} */
  #probe; // the probe in progress

  /**
   * @param {ReseatRuntime} runtime
   * @param {AbortSignal} signal the end of the session
   */
  constructor(runtime, signal) {
    this.#runtime = runtime;
    const forbid = (/** @type {any} */ { blockedURI }) => (this._forbidden ||= `${blockedURI}`.startsWith(this.#asked));
    runtime.window?.addEventListener?.('securitypolicyviolation', forbid, { signal });
    signal.addEventListener('abort', () => this._stop());
  }

  /**
   * Sends a probe, and reports its result unless `_stop` is called first.
   * @param {string} url where the WebSocket connects to
   * @param {(answer: number) => void} report
   */
  async _ask(url, report) {
    this._stop();
    const { signal } = (this.#probe = new AbortController());
    this.#asked = url.replace(/^ws/, 'http').replace(/\?.*/s, '');
    let answer = Answer.NO_ANSWER;
    // A page cannot read the answer of a proxy that refuses the probe, but learns that there is one.
    for (const mode of /** @type {const} */ (['cors', 'no-cors'])) {
      try {
        const { status } = await this.#runtime.fetch(`${this.#asked}?reseat.alive`, {
          mode,
          signal,
          cache: 'no-store',
          credentials: 'omit',
        });
        answer = status === 204 ? Answer.GATEWAY : Answer.OTHER;
        break;
      } catch {
        if (signal.aborted) return; // otherwise there was no answer, or none for this page
      }
    }
    if (!signal.aborted) report(this._forbidden ? Answer.FORBIDDEN : answer);
  }

  /** Cancels the probe in progress. */
  _stop() {
    this.#probe?.abort();
    this.#probe = undefined;
  }
}
