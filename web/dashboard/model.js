// @ts-check
// The state of the gateway, updated by one request at a time.
import { Refusal } from './api.js';
import { asked, holds } from './rows.js';
import { join } from './series.js';

/** How often the gateway is polled, in ms, and the backoff if it does not answer. */
const POLL_MS = 2000;
const MOST_MS = 15_000;
/** A request for new filters is sent this long after the last key or scroll, in ms. */
const SOON_MS = 80;

/** @typedef {import('./api.js').Session} Session */
/** @typedef {import('./series.js').Totals} Totals */
/** @typedef {{text: string, state: string, sort: string}} View what is looked for; sort as in the API */

/**
 * The Model polls while the page is visible.
 *
 * Events: `change`.
 */
export class Model extends EventTarget {
  api;
  /** The newest answer, null before the first. @type {any} */
  overview = null;
  /** @type {Totals[]} */
  samples = [];
  /** Newest first. @type {import('./refused.js').Refused[]} */
  refusals = [];
  /** @type {View} */
  view = { text: '', state: '', sort: 'since' };
  /** Rows that are drawn. @type {import('./rows.js').Span} */
  span = { first: 0, end: 40 };
  /** Why the last request failed. @type {Refusal | null} */
  failure = null;
  /** When the last good answer came, of performance.now(). */
  answered = 0;
  /** How far the gateway's clock is ahead of this one, in ms. */
  #ahead = 0;

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #asking = false;
  #again = false;
  #failures = 0;
  /** Counts the tokens: an answer to an older one is not shown. */
  #token = 0;

  /** @param {import('./api.js').Api} api */
  constructor(api) {
    super();
    this.api = api;
    document.addEventListener('visibilitychange', () => this.#seen() && this.#after(0));
  }

  /** The gateway's time, in ms since 1970. */
  get now() {
    return Date.now() + this.#ahead;
  }

  /** Whether this caller may change things. */
  get mayWrite() {
    return this.overview?.write === true;
  }

  /** Whether a token is required first. */
  get locked() {
    return this.failure?.status === 401;
  }

  /** Whether the gateway's sessions are frozen for an upgrade. */
  get frozen() {
    return this.failure?.status === 503;
  }

  start() {
    this.#after(0);
  }

  /** @param {string} token */
  unlock(token) {
    this.#token++;
    this.api.token = token;
    this.failure = null;
    this.#after(0);
  }

  /** Deletes the token, and all data that it gave access to. */
  lock() {
    this.#token++;
    this.api.token = '';
    this.overview = null;
    this.samples = [];
    this.refusals = [];
    this.failure = new Refusal(401, '');
    clearTimeout(this.#timer);
    this.#changed();
  }

  /** @param {Partial<View>} view */
  look(view) {
    this.view = { ...this.view, ...view };
    this.#changed();
    this.#after(SOON_MS);
  }

  /** Says which rows are drawn. @param {import('./rows.js').Span} span */
  scroll(span) {
    this.span = span;
    const { offset = 0, sessions = [], matching = 0 } = this.overview ?? {};
    if (!holds({ first: span.first, end: Math.min(span.end, matching) }, offset, sessions.length)) this.#after(SOON_MS);
  }

  /** A session among those that are loaded, by its place. @param {number} at @returns {Session | undefined} */
  row(at) {
    const { offset = 0, sessions = [] } = this.overview ?? {};
    return sessions[at - offset];
  }

  /** Polls at once after an action. */
  refresh() {
    this.#after(0);
  }

  #seen() {
    return document.visibilityState === 'visible';
  }

  /** @param {number} ms */
  #after(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#poll(), ms);
  }

  async #poll() {
    if (this.#asking) {
      this.#again = true;
      return;
    }
    if (!this.#seen()) return; // until it is
    this.#asking = true;
    await this.#ask();
    this.#asking = false;
    if (this.locked) return;
    this.#after(this.#again ? SOON_MS : Math.min(POLL_MS * 2 ** this.#failures, MOST_MS));
    this.#again = false;
  }

  async #ask() {
    const { text, state, sort } = this.view;
    const token = this.#token;
    try {
      const overview = await this.api.overview({
        q: text,
        state,
        sort,
        since: this.samples.at(-1)?.time ?? '',
        ...asked(this.span),
      });
      if (token !== this.#token) return;
      const refusals = this.#refusedSince(overview) ? (await this.api.refusals()).refusals : this.refusals;
      if (token !== this.#token) return;
      this.refusals = refusals;
      this.#take(overview);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (token !== this.#token) return;
      this.failure = error;
      if (!this.frozen) this.#failures++; // that is over in a moment
    }
    this.#changed();
  }

  /** Whether somebody was refused since the last answer. @param {any} overview */
  #refusedSince({ since, refusals }) {
    const before = this.overview?.since === since ? this.overview.refusals : 0;
    return refusals !== before || (refusals === 0 && this.refusals.length > 0);
  }

  /** @param {any} overview */
  #take(overview) {
    // Another process, which does not continue the counts and samples.
    const anew = this.overview && overview.since !== this.overview.since && overview.upgrade?.state !== 'ok';
    this.samples = join(anew ? [] : this.samples, overview.samples);
    this.#ahead = Date.parse(overview.time) - Date.now();
    this.overview = overview;
    this.failure = null;
    this.#failures = 0;
    this.answered = performance.now();
    if (anew) this.samples = this.samples.filter(({ time }) => time >= overview.since);
  }

  #changed() {
    this.dispatchEvent(new Event('change'));
  }
}
