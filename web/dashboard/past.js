// @ts-check
// A session's history as text, and as attached and detached periods.
import { count, duration, many, period, span } from './format.js';

/**
 * @typedef {object} Moment
 * @property {string} time
 * @property {string} type
 * @property {string} peer
 * @property {string} was
 * @property {string} reason
 * @property {string} detail
 * @property {string} [by] of session.ended: who ended it by the control API
 * @property {string} silent of session.detached: how long nothing had been heard of the client, as in flags
 * @property {string} away of session.resumed and session.superseded: since the last sign of life before, as in flags
 * @property {number} replay
 * @property {number} lost
 * @property {number} [skipped] replaced by newer ones
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
  'session.upstream_lost': { mark: '◇', kind: 'warn', word: 'game server lost' },
  'session.upstream_back': { mark: '◆', kind: 'good', word: 'game server back' },
  'session.upstream_closed': { mark: '◌', kind: 'warn', word: 'game server closed' },
  'session.moved': { mark: '↪', kind: 'good', word: 'moved' },
  'token.replayed': { mark: '!', kind: 'bad', word: 'token replayed' },
  'buffer.overflowed': { mark: '▲', kind: 'bad', word: 'buffer overflowed' },
  'grace.changed': { mark: '±', kind: 'plain', word: 'grace changed' },
  gap: { mark: '…', kind: 'plain', word: 'gap' },
};

/** @param {string} type */
export function lookOf(type) {
  return LOOKS[type] ?? { mark: '·', kind: 'plain', word: type };
}

/** @type {Record<string, (m: Moment) => (string | false)[]>} */
const WORDS = {
  'session.created': ({ peer }) => [peer ? `Created, from ${peer}` : 'Pre-created'],
  'session.started': () => ['Started by the game server'],
  'session.detached': ({ peer, reason, silent }) => [
    'Client disconnected',
    reason !== 'silent' && why(reason),
    silentFor(duration(silent)),
    Boolean(peer) && `was at ${peer}`,
  ],
  'session.resumed': (m) => [
    `Resumed from ${m.peer || 'an unknown address'}`,
    awayFor(duration(m.away)),
    ...replayed(m),
  ],
  'session.superseded': (m) => [
    `Taken over by ${m.peer || 'another connection'}`,
    Boolean(m.was) && `from ${m.was}`,
    awayFor(duration(m.away)),
    ...replayed(m),
  ],
  'session.ended': ({ reason, detail, by }) => [`Ended ${ending(reason, by)}`, quoted(reason, detail)],
  'session.upstream_lost': ({ reason }) => ['Game server lost, dialling again', Boolean(reason) && why(reason)],
  'session.upstream_back': () => ['Game server back'],
  'session.upstream_closed': ({ reason, silent }) => [
    'Game server closed the connection while the client was away',
    Boolean(reason) && why(reason),
    Boolean(silent) && `${period(silent)} after the client was last heard`,
  ],
  'session.moved': ({ reason }) => ['Moved to another node', moved(reason)],
  'token.replayed': ({ times }) => [
    `A superseded token was presented${times > 1 ? ` ${times} times` : ''}: a bug, or a theft`,
  ],
  'grace.changed': ({ was, detail }) => [`Grace period changed from ${period(was)} to ${period(detail)}`],
  'buffer.overflowed': ({ reason, times }) => [
    'Replay buffer full',
    Boolean(reason) && reason,
    times > 1 && `${times} times`,
  ],
};

/** A reason in words, without the sockets that the operating system names in it. @param {string} reason */
export function why(reason) {
  return reason.replace(/^(read|write) tcp \S+: /, '').replaceAll('_', ' ');
}

/** @type {Record<string, string>} */
const MOVES = { failover: 'its node was lost', handoff: 'its node drained' };

/** Why a session goes on at another node. @param {string} reason */
export function moved(reason) {
  return MOVES[reason] ?? why(reason);
}

/** Who ended a session, or what did, by the reason. @type {Record<string, string>} */
const ENDERS = {
  bye: 'by the client',
  client_gone: 'by the client, which cannot resume',
  draining: 'by a drain of this gateway',
  ended: 'by an operator or the game server',
  grace_over: 'by the gateway: the grace period was over',
  node_lost: 'with its node, which was lost',
  idle_timeout: 'by the gateway: no message for --idle-timeout',
  superseded: 'by a newer session of the player',
  upstream_closed: 'by the game server',
  upstream_lost: 'by the gateway: the game server was lost',
  window_exceeded: 'by the gateway: the replay buffer was full',
};

/**
 * Describes who ended a session, and why.
 * @param {string} reason
 * @param {string} [by] the caller of the control API
 */
export function ending(reason, by) {
  if (by) return `over the control API, by ${by}`;
  return ENDERS[reason] ?? `by the gateway: ${why(reason)}`;
}

/** What was said with an end, where that says more than its reason does. @param {string} reason @param {string} [detail] */
export function quoted(reason, detail) {
  const known = ['', reason, why(reason), 'grace period over'];
  return !known.includes(detail ?? '') && `“${detail}”`;
}

/** A moment in a sentence. @param {Moment} moment */
export function sentence(moment) {
  const words = WORDS[moment.type]?.(moment) ?? [moment.type];
  return words.filter(Boolean).join(', ');
}

/** How long nothing was heard before a client was taken for lost. @param {number} ms NaN where it is not known */
export function silentFor(ms) {
  return !Number.isNaN(ms) && `silent for ${span(ms)}`;
}

/** How long a client was away. @param {number} ms NaN where it is not known */
function awayFor(ms) {
  return !Number.isNaN(ms) && `away for ${span(ms)} since the last sign of life`;
}

/** @param {Moment} m */
function replayed({ replay, lost, skipped = 0 }) {
  return [
    `${many(replay, 'message')} replayed`,
    lost > 0 && `${count(lost)} lost`,
    skipped > 0 && `${count(skipped)} skipped`,
  ];
}

/** @typedef {{from: number, to: number, attached: boolean}} Stretch times in ms since 1970 */

/**
 * The periods in which a session was attached or detached, from the first moment after which the
 * history has no gap. An outage begins with the last sign of life.
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
    const heard = last?.attached ? Math.max(last.from, at - unheard(moment)) : at;
    if (last) last.to = heard;
    if (heard < at) list.push({ from: heard, to: at, attached: false });
    if (attached === 'over') return list;
    const newest = list.at(-1);
    if (newest?.attached === attached) newest.to = now;
    else list.push({ from: at, to: now, attached });
  }
  return list;
}

/** How long before a moment the client was heard last, in ms. @param {Moment} moment */
function unheard({ type, silent, away }) {
  // A resume of a session that was attached until then: its node was lost before it noticed.
  return duration({ 'session.detached': silent, 'session.superseded': away, 'session.resumed': away }[type] ?? '') || 0;
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
  const sum = (/** @type {boolean} */ attached) =>
    list.filter((s) => s.attached === attached).reduce((ms, { from, to }) => ms + to - from, 0);
  if (!list.some(({ attached }) => attached)) return `Not attached yet, for ${span(sum(false))}.`;
  const away = list.filter(({ attached }) => !attached).length;
  return `Attached for ${span(sum(true))}${away ? `, detached ${away === 1 ? 'once' : `${away} times`} for ${span(sum(false))} in all` : ', never detached'}.`;
}
