// @ts-check
// What is known of a game by what it sends: a heartbeat of its own that the page answers, and the
// library that speaks. Pure: it is told what comes and goes, and when.

/** A heartbeat comes no faster, in ms: as --keepalive-send: hint has it. */
const LEAST_PACE_MS = 900;
/** The answer comes within this time, in ms. */
const ANSWER_MS = 1000;
const LONGEST = 64;
/** So many texts are remembered, those that came last. */
const MOST = 4000;
/** So many answers, all the same, to the same message. */
const SURE = 2;
/** A habit is as long as the payload of --keepalive-send may be, and so many are told apart. */
const LONGEST_HABIT = 256;
const MOST_HABITS = 100;
const OFTEN = 10;

/**
 * @typedef {object} Heard
 * @property {number} gaps that were measured
 * @property {number} at when it came last; NaN: it has waited for an outage to end, so the next gap says nothing
 * @property {number} every mean gap, in ms; 0: not known
 * @property {string | null} answer '' before the first, null if they differ
 * @property {number} answered
 * @property {number} asked times it came at all
 * @property {number | undefined} into how far into an outage it came first, in ms; NaN: not known
 */

export class Wire {
  /** @type {Map<string, Heard>} */
  #heard = new Map();
  #last = '';
  #lastAt = 0;
  #hub = '';
  /** What the page says again and again, by its text without numbers. @type {Map<string, {times: number, data: string}>} */
  #habits = new Map();

  /** The game server has sent a message. @param {unknown} data @param {number} now @param {number} [lostAt] when the connection was lost, if it waited for that to end */
  heard(data, now, lostAt) {
    this.#last = '';
    if (typeof data !== 'string' || data.length > LONGEST) return;
    const one = this.#heard.get(data) ?? {
      gaps: 0,
      at: NaN,
      every: 0,
      answer: '',
      answered: 0,
      asked: 0,
      into: undefined,
    };
    this.#heard.delete(data);
    this.#heard.set(data, one); // the last one now
    if (this.#heard.size > MOST) this.#heard.delete(/** @type {string} */ (this.#heard.keys().next().value));
    one.asked++;
    this.#last = data;
    this.#lastAt = now;
    if (lostAt !== undefined) {
      const { at, every } = one;
      one.into ??= at >= 0 && every ? at + every * Math.max(1, Math.ceil((lostAt - at) / every)) - lostAt : NaN;
      one.at = NaN;
      return;
    }
    if (one.at >= 0) one.every += (now - one.at - one.every) / ++one.gaps;
    one.at = now;
  }

  /** The page sends a message. @param {unknown} data @param {number} now */
  said(data, now) {
    if (typeof data !== 'string') return;
    this.#habit(data);
    const [, hub] = /^\{"protocol":"(json|messagepack)","version":\d+\}\x1e$/.exec(data) ?? [];
    if (hub) this.#hub = hub;
    const one = this.#heard.get(this.#last);
    this.#last = '';
    if (!one || now - this.#lastAt > ANSWER_MS) return;
    if (one.answer === '') one.answer = data;
    if (one.answer === data) one.answered++;
    else one.answer = null;
  }

  /** @param {string} data */
  #habit(data) {
    if (data.length > LONGEST_HABIT) return;
    const shape = data.replace(/\d+(\.\d+)?/g, '0');
    const { times } = this.#habits.get(shape) ?? { times: 0 };
    if (times || this.#habits.size < MOST_HABITS) this.#habits.set(shape, { times: times + 1, data });
  }

  /** What the page says most, as it said it last; '' if it says nothing often. */
  get habit() {
    const [first] = [...this.#habits.values()].sort((a, b) => b.times - a.times);
    return first?.times >= OFTEN ? first.data : '';
  }

  /** The heartbeat of the game server. @returns {{receive: string, answer: string, into: number | undefined} | undefined} */
  get ping() {
    for (const [receive, { every, answer, answered, asked, into }] of this.#heard)
      if (
        answer &&
        (every === 0 || every >= LEAST_PACE_MS) &&
        answered >= SURE &&
        answered >= asked - 1 &&
        !receive.includes('=>') &&
        answer.length <= LONGEST
      )
        return { receive, answer, into };
    return undefined;
  }

  /** The protocol of the library that speaks, '' if none is known. @param {URL} url */
  protocolOf({ pathname, searchParams }) {
    if (searchParams.has('EIO') || pathname.startsWith('/socket.io/'))
      return searchParams.get('EIO') === '3' ? 'engine.io 3' : 'engine.io';
    if (this.#hub) return `signalr ${this.#hub}`;
    if (searchParams.has('sessionId') && /^\/[\w-]+\/[\w-]+$/.test(pathname)) return 'colyseus';
    const { receive, answer } = this.ping ?? {};
    return receive === '2' && answer === '3' ? 'engine.io' : '';
  }
}
