// Messages that carry their number, in every kind that a WebSocket knows, and
// the check of what came. The page and the game server use the same.

/** Every so many messages comes a long one. */
const LONG_EVERY = 16;
const SHORT = 40;
const LONG = 60_000;

/** The kinds of message, by number. */
const KINDS = ['text', 'control-like text', 'bytes', 'blob'];

/** @param {number} n @param {number} [length] of the filler */
const lengthOf = (n, length = n % LONG_EVERY === 0 ? LONG : SHORT) => length;

/** @param {number} n */
const letterOf = (n) => String.fromCharCode(97 + (n % 26));

/**
 * Message number n: text, text that begins with DLE as control messages do,
 * or bytes.
 * @param {number} n
 * @param {number} [length] of the filler
 * @returns {{kind: string, data: string | Uint8Array}}
 */
export function make(n, length) {
  const kind = KINDS[n % KINDS.length];
  const filler = letterOf(n).repeat(lengthOf(n, length));
  const text = `${n}:${filler}`;
  if (kind === 'text') return { kind, data: text };
  if (kind === 'control-like text') return { kind, data: `\x10${text}` };
  return { kind, data: new TextEncoder().encode(text) };
}

/**
 * What a message says, or why it is none of ours.
 * @param {string | ArrayBuffer | Uint8Array} data
 * @returns {number | string}
 */
export function numberOf(data) {
  const text = typeof data === 'string' ? data : new TextDecoder().decode(data);
  const [, dle, digits, filler] = /^(\x10?)(\d+):([a-z]*)$/.exec(text) ?? [];
  const n = Number(digits);
  if (digits === undefined || filler !== letterOf(n).repeat(filler.length)) return 'a damaged message';
  const { kind } = make(n, 0);
  const came = typeof data !== 'string' ? 'bytes' : dle ? 'control-like text' : 'text';
  return came === kind || (came === 'bytes' && kind === 'blob') ? n : `${n} as ${came}`;
}

/** A Ledger holds what came against what should: 1, 2, 3 and so on, each once. */
export class Ledger {
  received = 0;
  /** What was wrong, the first few. @type {string[]} */
  faults = [];

  /** @param {string | ArrayBuffer | Uint8Array} data */
  note(data) {
    const got = numberOf(data);
    this.received++;
    if (got !== this.received && this.faults.length < 10) this.faults.push(`got ${got}, wanted ${this.received}`);
  }
}
