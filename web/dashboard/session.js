// @ts-check
// One session's page.
import { Actions } from './actions.js';
import { Refusal } from './api.js';
import { ago, bytes, clock, count, many, period, rtt, span } from './format.js';
import { html } from './html.js';
import { Buffered, Grace, Signs, State } from './marks.js';
import { ending, lookOf, moved, quoted, sentence, stretches, summary } from './past.js';
import { useEffect, useLayoutEffect, useRef, useState } from './vendor/hooks.js';

/** How often it is polled, in ms. */
const POLL_MS = 1000;

/** @typedef {import('./api.js').Session} Session */
/** @typedef {import('./past.js').Moment} Moment */
/** @typedef {{session: Session, moments: Moment[], leftOut: number}} Seen */

/**
 * @param {{model: import('./model.js').Model, id: string}} props
 */
export function SessionPage({ model, id }) {
  const [seen, setSeen] = useState(/** @type {Seen | null} */ (null));
  const [failure, setFailure] = useState('');
  const [said, setSaid] = useState('');
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  const again = useRef(() => {});
  useEffect(() => {
    const poll = new Poll(model, id, setSeen, setFailure);
    again.current = () => poll.now();
    poll.now();
    return () => poll.stop();
  }, [id]);
  useLayoutEffect(() => heading.current?.focus(), [id, seen === null]);

  const done = (/** @type {string} */ words) => {
    setSaid(words);
    again.current();
  };
  return html`
    <section class="panel session" aria-labelledby="session-title" data-testid="session">
      <p class="back"><a href="#/">← All sessions</a></p>
      <h2 id="session-title" tabindex="-1" ref=${heading}>
        <bdi>${(seen && seen.session.player) || 'Session'}</bdi> <code>${id}</code>
      </h2>
      ${failure && html`<p class="refusal" role="alert">${failure}</p>`}
      ${seen && html`<${Body} ...${seen} model=${model} done=${done} />`}
      <p class="said" role="status" data-testid="said">${said}</p>
    </section>
  `;
}

/** A Poll requests one session repeatedly until it is stopped or the session has ended. */
class Poll {
  #model;
  #id;
  #take;
  #fail;
  #stopped = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /**
   * @param {import('./model.js').Model} model
   * @param {string} id
   * @param {(seen: Seen) => void} take
   * @param {(why: string) => void} fail
   */
  constructor(model, id, take, fail) {
    this.#model = model;
    this.#id = id;
    this.#take = take;
    this.#fail = fail;
  }

  async now() {
    clearTimeout(this.#timer);
    const over = document.visibilityState === 'visible' && (await this.#ask());
    clearTimeout(this.#timer);
    if (!this.#stopped && !over) this.#timer = setTimeout(() => this.now(), POLL_MS);
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** Whether nothing will change any more. */
  async #ask() {
    try {
      const [session, { events, left_out }] = await Promise.all([
        this.#model.api.session(this.#id),
        this.#model.api.history(this.#id),
      ]);
      if (this.#stopped) return true;
      this.#take({ session, moments: events, leftOut: left_out });
      this.#fail('');
      return session.state === 'ended' && isWhole(events);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (this.#stopped) return true;
      this.#fail(
        error.status === 404
          ? 'No such session. Ended sessions are remembered for their grace period, at least 30 s.'
          : `Out of date: ${error.message}.`,
      );
      return error.status === 404;
    }
  }
}

/** Whether an ended session's history has its end, which comes a moment later. @param {Moment[]} moments */
function isWhole(moments) {
  return moments.length === 0 || moments.some(({ type }) => type === 'session.ended');
}

/** @param {Seen & {model: import('./model.js').Model, done: (said: string) => void}} props */
function Body({ session, moments, leftOut, model, done }) {
  return html`
    <div class="summary">
      <${State} state=${session.state} />
      <${Signs} session=${session} words />
      ${session.state === 'ended' && html`<span class="why">${[ending(session.reason ?? '', session.by), quoted(session.reason ?? '', session.detail)].filter(Boolean).join(', ')}</span>`}
      ${session.state === 'detached' && html`<span>grace left</span><${Grace} session=${session} now=${model.now} />`}
      ${model.mayWrite && html`<${Actions} api=${model.api} session=${session} done=${done} />`}
    </div>
    <${Facts} session=${session} now=${model.now} />
    <h3 id="past-title">History</h3>
    <${Strip} moments=${moments} leftOut=${leftOut} now=${model.now} />
    <${Past} moments=${moments} leftOut=${leftOut} />
  `;
}

const CLIENTS = { resumable: 'can resume', cookie: 'plain, resumes by cookie', plain: 'plain, cannot resume' };

/** @param {{session: Session, now: number}} props */
function Facts({ session, now }) {
  const until = session.ended_since ? Date.parse(session.ended_since) : now;
  const facts = [
    [
      'Client',
      session.peer || 'none yet',
      `${CLIENTS[session.client]}${session.silent_ms === null ? '' : `, last heard ${ago(session.silent_ms)}`}`,
    ],
    [
      'Path',
      html`<bdi>${session.path}</bdi>`,
      `route ${session.route}, ${session.started ? 'started' : 'not started'}`,
    ],
    ['Group', session.group || '–', ''],
    ...inCluster(session),
    ['Age', span(until - Date.parse(session.since)), `since ${clock(session.since)}`],
    ['Grace period', period(session.grace), `when the buffer is full: ${session.overflow}`],
    [
      'Round trip',
      session.rtt_ms === null ? 'not measured yet' : rtt(session.rtt_ms),
      session.state === 'attached' ? 'smoothed' : 'no client is attached',
    ],
    [
      'From the client',
      many(session.received, 'message'),
      lag(session.received - session.written, 'not written to the game server yet'),
    ],
    ...steady(session),
    ['To the client', many(session.sent, 'message'), lag(session.sent - session.acked, 'not acknowledged yet')],
    ...missing(session),
    [
      'Replay buffer',
      html`<${Buffered} session=${session} />`,
      `${count(session.buffer_messages)} of ${count(session.buffer_max_messages)} messages, ${bytes(session.buffer_bytes)} of ${bytes(session.buffer_max_bytes)}`,
    ],
  ];
  return html`<dl class="facts">
    ${facts.map(
      ([name, value, more]) =>
        html`<div>
          <dt>${name}</dt>
          <dd>${value}</dd>
          <dd class="more">${more}</dd>
        </div>`,
    )}
  </dl>`;
}

/** Messages that the client has not got, or will not get. @param {Session} session */
function missing({ dropped, skipped, newest }) {
  if (!dropped && !skipped && !newest?.length) return [];
  const states = newest?.length ? `states: ${newest.join(' ')}` : '';
  return [['Not sent', `${count(dropped)} dropped, ${count(skipped)} skipped`, states]];
}

const LOSS = {
  covered: ['yes', 'goes on at another node if this one is lost'],
  exposed: ['exposed', 'NATS does not have it: it ends with its node'],
  no: ['no', 'ends with its node'],
};

/** What a session has in a cluster. @param {Session} session */
function inCluster({ node, durable, moved: how, epoch }) {
  if (!node) return [];
  return [
    ['Node', html`<bdi>${node}</bdi>`, how ? `moved here: ${moved(how)}` : 'began here'],
    ['Durable', ...(LOSS[durable] ?? LOSS.no)],
    ['Moves', count(epoch ?? 0), 'from node to node'],
  ];
}

/** What was noticed of the client, and of what is sent to it. @param {Session} session */
function steady({ keepalive, newest_hint: states }) {
  return [
    ['Keepalive', keepalive, 'what the client sends at a steady pace, as a flag'],
    ['States', states, 'messages of which only the newest may count, as a flag'],
  ]
    .filter(([, flag]) => flag)
    .map(([name, flag, note]) => [name, html`<code><bdi>${flag}</bdi></code>`, note]);
}

/** @param {number} n @param {string} what */
function lag(n, what) {
  return n > 0 ? `${count(n)} ${what}` : 'all through';
}

/** When it was attached, as a strip. @param {{moments: Moment[], leftOut: number, now: number}} props */
function Strip({ moments, leftOut, now }) {
  const list = stretches(moments, leftOut, now);
  if (list.length === 0) return null;
  const [from, to] = [list[0].from, Math.max(list[list.length - 1].to, list[0].from + 1)];
  const part = (/** @type {number} */ ms) => `${(100 * ms) / (to - from)}%`;
  return html`
    <div class="strip" role="img" aria-label=${summary(list)}>
      ${list.map((s) => html`<span data-attached=${s.attached} style=${{ left: part(s.from - from), width: part(s.to - s.from) }} />`)}
    </div>
    <p class="strip-ends"><span>${clock(from)}</span><span>${summary(list)}</span><span>${clock(to)}</span></p>
  `;
}

/** Newest first. @param {{moments: Moment[], leftOut: number}} props */
function Past({ moments, leftOut }) {
  const lines = moments.map((moment, i) => html`<${PastLine} key=${i === 0 ? 0 : i + leftOut} ...${moment} />`);
  if (leftOut > 0) lines.splice(1, 0, html`<li class="faint" key="left">${count(leftOut)} more are not kept</li>`);
  return html`<ol class="past" aria-labelledby="past-title" data-testid="past">
    ${lines.reverse()}
  </ol>`;
}

/** @param {Moment} moment */
function PastLine(moment) {
  const { mark, kind } = lookOf(moment.type);
  return html`
    <li data-kind=${kind}>
      <time datetime=${moment.time}>${clock(moment.time)}</time>
      <span class="mark" aria-hidden="true">${mark}</span>
      <span>${sentence(moment)}</span>
    </li>
  `;
}
