// @ts-check
// The live feed of events.
import { html } from './html.js';
import { brief, clock, count, span } from './format.js';
import { opener } from './opener.js';
import { ending, lookOf, moved, quoted, silentFor, why } from './past.js';
import { useEffect, useReducer } from './vendor/hooks.js';

/** The max number of events that are kept. */
const MOST = 200;
/** The min time between two updates of the list, in ms: a mass reconnect causes thousands of events. */
const DRAW_MS = 250;
const RETRY_MS = 3000;

/** @typedef {{id: string, type: string, time: string, session: string, player: string, group: string, reason: string, detail?: string, by?: string, node?: string, silent_ms: number | null, away_ms: number | null}} Entry */

/**
 * The Feed reads the event stream while it runs, and continues after the newest event if the stream
 * breaks.
 *
 * Events: `change`, some times a second at most.
 */
export class Feed extends EventTarget {
  /** Newest first. @type {Entry[]} */
  list = [];
  /** The number of events received, including those not kept. */
  seen = 0;
  open = false;
  paused = false;
  #api;
  #lastId = '';
  #running = new AbortController();
  /** What came since the list was drawn. @type {Entry[]} */
  #fresh = [];
  #drawing = false;

  /** @param {import('./api.js').Api} api */
  constructor(api) {
    super();
    this.#api = api;
  }

  /** Ends with stop(). */
  async start() {
    this.#running = new AbortController();
    const { signal } = this.#running;
    while (!signal.aborted) {
      await this.#api.events(this.#lastId, MOST, signal, (messages) => this.#take(messages)).catch(() => {});
      this.open = false;
      this.#draw();
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }

  stop() {
    this.#running.abort();
  }

  /** Pauses the list, or continues it with the events received meanwhile. */
  toggle() {
    this.paused = !this.paused;
    this.#show();
  }

  clear() {
    this.list = [];
    this.#fresh = [];
    this.#show();
  }

  /** @param {import('./sse.js').Message[]} messages */
  #take(messages) {
    this.open = true;
    for (const { id, data } of messages) {
      this.#lastId = id;
      this.#fresh.unshift({ id, ...JSON.parse(data) });
      this.seen++;
    }
    this.#fresh.length = Math.min(this.#fresh.length, MOST);
    this.#draw();
  }

  #draw() {
    if (this.#drawing) return;
    this.#drawing = true;
    setTimeout(() => {
      this.#drawing = false;
      this.#show();
    }, DRAW_MS);
  }

  #show() {
    if (!this.paused && this.#fresh.length > 0) {
      this.list = [...this.#fresh, ...this.list].slice(0, MOST);
      this.#fresh = [];
    }
    this.dispatchEvent(new Event('change'));
  }
}

/** Draws a component anew at each `change`. @param {EventTarget} source */
export function useChanges(source) {
  const [, redraw] = useReducer((/** @type {number} */ n) => n + 1, 0);
  useEffect(() => {
    source.addEventListener('change', redraw);
    return () => source.removeEventListener('change', redraw);
  }, [source]);
}

/** @param {{feed: Feed}} props */
export function FeedPanel({ feed }) {
  useChanges(feed);
  return html`
    <section class="panel feed" aria-labelledby="feed-title">
      <header>
        <h2 id="feed-title">Events</h2>
        <span class="hint" data-testid="feed-seen"
          >${feed.open ? html`${count(feed.seen)}<span class="words"> so far</span>` : 'connecting…'}</span
        >
        <button type="button" class="small" aria-pressed=${feed.paused} onClick=${() => feed.toggle()}>Pause</button>
        <button type="button" class="small" onClick=${() => feed.clear()}>Clear</button>
      </header>
      <div class="log" role="log" aria-live="off" aria-labelledby="feed-title" tabindex="0" data-testid="feed">
        <ol>
          ${feed.list.map((entry) => html`<${Line} key=${entry.id} ...${entry} />`)}
        </ol>
      </div>
      ${feed.list.length === 0 && html`<p class="empty">${feed.seen === 0 ? 'No events yet.' : feed.paused ? 'Paused.' : 'Cleared. New events appear here.'}</p>`}
    </section>
  `;
}

/** @param {Entry} entry */
function Line({ type, time, session, player, reason, detail, by, node, silent_ms, away_ms }) {
  const { mark, kind, word } = lookOf(type);
  const silent = silentFor(silent_ms ?? NaN);
  const details = [
    type === 'session.moved' && node && `now at ${node}`,
    reason && !(silent && reason === 'silent') && because(type, reason, by),
    quoted(reason, detail),
    silent,
    away_ms != null && `away for ${span(away_ms)}`,
  ].filter(Boolean);
  return html`
    <li data-kind=${kind} class=${session ? 'opens' : undefined} onClick=${session ? opener(session) : undefined}>
      <time datetime=${time}>${clock(time)}</time>
      <span class="mark" aria-hidden="true">${mark}</span>
      <span class="what">
        <b>${word}</b>${' '}
        ${session && html`<a href=${`#/session/${session}`}><bdi>${player || brief(session)}</bdi></a>`}
        ${details.length > 0 && html`<span class="why"> ${details.join(', ')}</span>`}
      </span>
    </li>
  `;
}

/** Why, in words. @param {string} type @param {string} reason @param {string} [by] */
function because(type, reason, by) {
  if (type === 'session.ended') return ending(reason, by);
  return type === 'session.moved' ? moved(reason) : why(reason);
}
