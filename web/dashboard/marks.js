// @ts-check
// Small components: a state, a meter, the rest of a grace period.
import { bytes, count, duration, period, span } from './format.js';
import { html } from './html.js';
import { moved } from './past.js';

/** @typedef {import('./api.js').Session} Session */

/** The mark of each state differs in shape, not in colour alone. */
const MARKS = { connecting: '○', attached: '●', detached: '◐', ended: '■' };

/** @param {{state: keyof typeof MARKS}} props */
export function State({ state }) {
  return html`<span class="state" data-state=${state}
    ><span class="mark" aria-hidden="true">${MARKS[state]}</span>${state}</span
  >`;
}

/** The signs of a session beside its state: whether it is durable, and whether it came from another node. */
const SIGNS = {
  covered: { mark: '◈', word: 'durable', title: 'Durable: if its node is lost, it goes on at another one' },
  exposed: {
    mark: '△',
    word: 'exposed',
    title: 'Exposed: it should be durable, but NATS does not have it, and it ends with its node',
  },
  moved: { mark: '↪', word: 'moved', title: '' },
};

/** The signs of a session, none for an ordinary one, or one of an older node. @param {Session} session @returns {(keyof typeof SIGNS)[]} */
export function signs({ durable, moved: how }) {
  return [
    ...(durable in SIGNS ? [/** @type {keyof typeof SIGNS} */ (durable)] : []),
    ...(how ? [/** @type {const} */ ('moved')] : []),
  ];
}

/** The signs as marks, or with words beside them. @param {{session: Session, words?: boolean}} props */
export function Signs({ session, words = false }) {
  return signs(session).map((sign) => {
    const { mark, word, title } = SIGNS[sign];
    return html`<span class="durability" data-sign=${sign} title=${title || `Moved: ${moved(session.moved)}`}
      ><span class="mark" aria-hidden="true">${mark}</span><span class=${words ? '' : 'hidden'}>${word}</span></span
    >`;
  });
}

/** How much of a grace period is left, from 0 to 1, and in ms; null while it does not run. @param {Session} session @param {number} now */
export function graceLeft({ state, expires, grace }, now) {
  if (state !== 'detached' || !expires) return null;
  const ms = Math.max(0, Date.parse(expires) - now);
  return { ms, part: Math.min(1, ms / (duration(grace) || Infinity)) };
}

/** @param {{session: Session, now: number}} props */
export function Grace({ session, now }) {
  const left = graceLeft(session, now);
  if (!left) return html`<span class="faint">${session.resumable ? period(session.grace) : '–'}</span>`;
  const level = left.part < 0.25 ? 'bad' : 'warn';
  return html`<${Meter}
    part=${left.part}
    level=${level}
    text=${left.ms > 0 ? span(Math.ceil(left.ms / 1000) * 1000) : 'over'}
  />`;
}

/** The part of the replay buffer that is taken, by what is scarcer. @param {Session} session */
export function fill(session) {
  const part = (/** @type {number} */ n, /** @type {number} */ most) => (most > 0 ? n / most : 0);
  return Math.min(
    1,
    Math.max(
      part(session.buffer_bytes, session.buffer_max_bytes),
      part(session.buffer_messages, session.buffer_max_messages),
    ),
  );
}

/** @param {{session: Session}} props */
export function Buffered({ session }) {
  const part = fill(session);
  if (session.buffer_messages === 0) return html`<span class="faint">empty</span>`;
  const level = part >= 0.9 ? 'bad' : part >= 0.5 ? 'warn' : 'good';
  return html`<${Meter}
    part=${part}
    level=${level}
    text=${percent(part)}
    more=${`${count(session.buffer_messages)} msg, ${bytes(session.buffer_bytes)}`}
  />`;
}

/** @param {number} part */
export function percent(part) {
  if (part > 0 && part < 0.01) return '<1 %';
  return `${Math.round(part * 100)} %`;
}

/** A bar with its value in words beside it. @param {{part: number, level: string, text: string, more?: string}} props */
export function Meter({ part, level, text, more }) {
  return html`
    <span class="meter" data-level=${level} title=${more}>
      <span class="bar" aria-hidden="true">${part > 0 && html`<span style=${{ width: `${part * 100}%` }} />`}</span>
      <span class="value">${text}</span>
    </span>
  `;
}
