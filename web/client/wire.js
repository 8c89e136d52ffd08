export const VERSION = 'reseat.v1';
export const DLE = '\x10';

/** protocol section 5: how much may come before an ack is due. */
export const ACK_MESSAGES = 32;
export const ACK_BYTES = 64 * 1024;
/** protocol section 3.1: how many bytes of parts may come before an answer is due. */
export const PART_ANSWER = 32 * 1024;

// Encoding and decoding of reseat.v1, as pure functions.

/** @typedef {import('./types.js').Verdict} Verdict */

/** Throws for what the gateway must not send; its callers do not read the message. @param {unknown} good @returns {asserts good} */
function want(good) {
  if (!good) throw new Error();
}

/** @param {unknown} value @returns {value is number} */
const isCount = (value) => Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0;

/** @param {unknown} value */
export const isToken = (value) => typeof value === 'string' && /^[\w!#-'*+.^`|~-]+$/.test(value);

/** @param {any} text undefined is no number either */
function readDigits(text) {
  want(/^\d{1,16}$/.test(text));
  return Number(text);
}

/** @param {string | undefined} text */
function readEcho(text) {
  want(text === undefined || /^\P{Cc}{1,32}$/u.test(text));
  return text ?? '';
}

/** @param {string} text @returns {Verdict} */
function readEnding(text) {
  const { code, reason = '', retry, retry_after_ms = 0, status = 0 } = JSON.parse(text);
  want([code, status, retry_after_ms].every(isCount) && code < 65_536 && typeof reason === 'string');
  return { code, reason, retry: retry !== false, retry_after_ms, status };
}

/**
 * The members of a hello that hold until the next one. A gateway of the second edition has no `answer_ms`.
 * @typedef {{ session: string, token: string, grace_ms: number, heartbeat_ms: number, answer_ms?: number, probe?: boolean,
 *   route?: any, limits?: { unacked_messages?: number, unacked_bytes?: number }, part_bytes?: number,
 *   partial?: { down?: number, up?: number } }} Terms
 */

/** @typedef {Terms & { received: number, lost: number, skipped: number, replay: number, protocol?: string, moved?: string }} Hello */

/** The verbs of protocol section 5 that a gateway may use, each with how its argument is read. */
const VERBS = {
  __proto__: null,
  /** @param {string} text @returns {Hello} */
  hello(text) {
    const counts = { received: 0, lost: 0, skipped: 0, replay: 0, grace_ms: 30_000, heartbeat_ms: 15_000 };
    const hello = { session: '', ...counts, ...JSON.parse(text) };
    const { answer_ms = 0, part_bytes = 0, partial: { down = 0, up = 0 } = {} } = hello;
    want(isToken(hello.token) && [answer_ms, part_bytes, down, up].every(isCount));
    want(Object.keys(counts).every((name) => isCount(hello[name])));
    return hello;
  },
  ack: readDigits,
  /** @param {string} text @returns {string} */
  token(text) {
    const { token } = JSON.parse(text);
    want(isToken(token));
    return token;
  },
  grace: readDigits,
  ping: readEcho,
  pong: readEcho,
  /** @param {string} text @returns {number} */
  move(text) {
    const { within_ms = 0 } = JSON.parse(text);
    want(isCount(within_ms));
    return within_ms;
  },
  /** @param {string} text @returns {string} */
  upstream: (text) => JSON.parse(text).state,
  /** @param {string} json @returns {import('./parts.js').Announced} */
  parts(json) {
    const { bytes, text = false, from = 0 } = JSON.parse(json);
    want(isCount(bytes) && isCount(from) && from < bytes && typeof text === 'boolean');
    return { bytes, text, from };
  },
  part: readDigits,
  /** @param {string} text */
  skip(text) {
    const count = readDigits(text);
    want(count > 0);
    return count;
  },
  end: readEnding,
  close: readEnding,
  bye: () => want(false), // only clients send it
};

/**
 * Reads a control message without its DLE. An unknown verb has no argument, and the caller
 * ignores it. Throws if there is no verb, or if the argument of a known one is invalid.
 *
 * @param {string} text
 * @returns {[string, any]} the verb and its argument
 */
export function readControl(text) {
  const [, verb, argument] = /^([a-z]{1,16})(?: ([^]*))?$/.exec(text) ?? [];
  want(verb);
  return [verb, /** @type {any} */ (VERBS)[verb]?.(argument)];
}

/** Text that begins with DLE gets one more in front (protocol section 3). @template {string | ArrayBuffer} T @param {T} data */
export const escaped = (data) => (/** @type {any} */ (data)[0] === DLE ? DLE + data : data);

const utf8 = new TextEncoder();

/** The length of text in UTF-8; a lone surrogate is sent as U+FFFD. @param {string} text */
export const utf8Length = (text) => utf8.encode(text).length;

/** @param {any} data text, ArrayBuffer, view or Blob */
export const sizeOf = (data) => (typeof data === 'string' ? utf8Length(data) : (data.byteLength ?? data.size ?? 0));
