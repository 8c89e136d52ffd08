// @ts-check
// A session's history in words, and as stretches of time.
import { many, span, duration } from './format.js';

/**
 * @typedef {object} Moment
 * @property {string} time
 * @property {string} type
 * @property {string} peer
 * @property {string} was
 * @property {string} reason
 * @property {string} detail
 * @property {string} away
 * @property {number} replay
 * @property {number} lost
 * @property {number} times
 */

/** How an event looks: its kind says the colour, its mark the shape. @type {Record<string, {mark: string, kind: string, word: string}>} */
export const LOOKS = {
  'session.created': { mark: '+', kind: 'plain', word: 'created' },
  'session.started': { mark: '▸', kind: 'plain', word: 'started' },
  'session.detached': { mark: '◐', kind: 'warn', word: 'detached' },
  'session.resumed': { mark: '●', kind: 'good', word: 'resumed' },
  'session.superseded': { mark: '⇄', kind: 'good', word: 'superseded' },
  'session.ended': { mark: '■', kind: 'plain', word: 'ended' },
  'token.replayed': { mark: '!', kind: 'bad', word: 'token replayed' },
  'buffer.overflowed': { mark: '▲', kind: 'bad', word: 'buffer overflowed' },
  gap: { mark: '…', kind: 'plain', word: 'gap' },
};

/** @param {string} type */
export function lookOf(type) {
  return LOOKS[type] ?? { mark: '·', kind: 'plain', word: type };
}

/** @type {Record<string, (m: Moment) => (string | false)[]>} */
const WORDS = {
  'session.created': ({ peer }) => [peer ? `Created, from ${peer}` : 'Created ahead of its client'],
  'session.started': () => ['Started by the game server'],
  'session.detached': ({ peer, reason }) => ['Client lost', why(reason), Boolean(peer) && `was at ${peer}`],
  'session.resumed': (m) => [`Resumed from ${m.peer || 'somewhere'} after ${span(duration(m.away) || 0)}`, ...replayed(m)],
  'session.superseded': (m) => [`Taken over by ${m.peer || 'another connection'}`, Boolean(m.was) && `from ${m.was}`, ...replayed(m)],
  'session.ended': ({ reason, detail }) => [`Ended: ${why(reason)}`, detail !== '' && detail !== reason && `“${detail}”`],
  'token.replayed': ({ times }) => [`A spent token came${times > 1 ? `, ${times} times` : ''}: a bug, or a theft`],
  'buffer.overflowed': ({ reason, times }) => ['Replay buffer full', Boolean(reason) && reason, times > 1 && `${times} times`],
};

/** A reason in words, without the sockets that the operating system names in it. @param {string} reason */
export function why(reason) {
  return reason.replace(/^(read|write) tcp \S+: /, '').replaceAll('_', ' ');
}

/** A moment in a sentence. @param {Moment} moment */
export function sentence(moment) {
  const words = WORDS[moment.type]?.(moment) ?? [moment.type];
  return words.filter(Boolean).join(', ');
}

/** @param {Moment} m */
function replayed({ replay, lost }) {
  return [`${many(replay, 'message')} replayed`, lost > 0 && `${count(lost)} lost`];
}

/** @param {number} n */
const count = (n) => n.toLocaleString('en');

/** @typedef {{from: number, to: number, attached: boolean}} Stretch times in ms since 1970 */

/**
 * When a session was attached and when not, from the first moment that is known
 * without a gap before the next.
 * @param {Moment[]} moments
 * @param {number} leftOut moments between the first and the second
 * @param {number} now
 * @returns {Stretch[]}
 */
export function stretches(moments, leftOut, now) {
  const known = leftOut > 0 ? moments.slice(1) : moments;
  /** @type {Stretch[]} */
  const list = [];
  for (const moment of known) {
    const attached = attachedAfter(moment);
    if (attached === null) continue;
    const at = Date.parse(moment.time);
    const last = list.at(-1);
    if (last) last.to = at;
    if (attached === 'over') return list;
    if (last?.attached !== attached) list.push({ from: at, to: now, attached });
    else last.to = now;
  }
  return list;
}

/** @param {Moment} moment @returns {boolean | 'over' | null} null: it says nothing */
function attachedAfter({ type, peer }) {
  switch (type) {
    case 'session.created':
      return peer !== '';
    case 'session.resumed':
    case 'session.superseded':
      return true;
    case 'session.detached':
      return false;
    case 'session.ended':
      return 'over';
  }
  return null;
}

/** @param {Stretch[]} list */
export function summary(list) {
  const sum = (/** @type {boolean} */ attached) => list.filter((s) => s.attached === attached).reduce((ms, { from, to }) => ms + to - from, 0);
  if (!list.some(({ attached }) => attached)) return `Not attached yet, for ${span(sum(false))}.`;
  const away = list.filter(({ attached }) => !attached).length;
  return `Attached for ${span(sum(true))}${away ? `, away ${away === 1 ? 'once' : `${away} times`} for ${span(sum(false))} in all` : ', never away'}.`;
}
