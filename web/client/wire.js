export const VERSION = 'reseat.v1';
export const REFUSALS = 'reseat.refusals';
export const DLE = '\x10';

/** protocol section 5: how much may come before an ack is due. */
export const ACK_MESSAGES = 32;
export const ACK_BYTES = 64 * 1024;

// The words of reseat.v1, as pure functions.

/** @typedef {import('./types.js').Verdict} Verdict */

/** What the gateway must not send is an error; nobody reads its text. @param {unknown} good @returns {asserts good} */
function want(good) {
  if (!good) throw new Error();
}

/** @param {unknown} value @returns {value is number} */
const isCount = (value) => Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0;

/** @param {unknown} value @returns {value is number} */
const isSpan = (value) => Number.isFinite(value) && /** @type {number} */ (value) >= 0;

/** @param {unknown} value */
export const isToken = (value) => typeof value === 'string' && /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(value);

/** @param {string | undefined} text @returns {any} */
function readObject(text) {
  want(text?.startsWith('{'));
  return JSON.parse(/** @type {string} */ (text));
}

/** @param {string | undefined} text */
function readDigits(text) {
  want(/^\d{1,16}$/.test(text ?? ''));
  return Number(text);
}

/** @param {string | undefined} text */
function readEcho(text) {
  want(text === undefined || /^\P{Cc}{1,32}$/u.test(text));
  return text ?? '';
}

/** @param {string | undefined} text */
function readHello(text) {
  const {
    session = '',
    token,
    received = 0,
    lost = 0,
    replay = 0,
    grace_ms: grace = 30_000,
    heartbeat_ms: heartbeat = 15_000,
    answer_ms: answer, // undefined: a gateway of the second edition
    protocol,
    limits,
    moved,
  } = readObject(text);
  want(isToken(token));
  want([received, lost, replay].every(isCount) && [grace, heartbeat, answer ?? 0].every(isSpan));
  return {
    session: `${session}`,
    token: `${token}`,
    received,
    lost,
    replay,
    grace,
    heartbeat,
    answer,
    limits,
    moved: moved === 'failover',
    protocol: `${protocol ?? ''}`,
  };
}

/** @typedef {ReturnType<typeof readHello>} Hello */

/**
 * What of a hello holds until the next one.
 * @typedef {Pick<Hello, 'session' | 'token' | 'grace' | 'heartbeat' | 'answer' | 'limits'>} Terms
 */

/** @param {string | undefined} text @returns {Verdict} */
function readEnding(text) {
  const { code, reason = '', retry = true, retry_after_ms: after = 0, status } = readObject(text);
  want(isCount(code) && code < 65_536 && typeof reason === 'string');
  return {
    code,
    reason,
    retry: retry !== false,
    after: isSpan(after) ? after : 0,
    status: isCount(status) ? status : 0,
    final: false,
  };
}

/** @param {string | undefined} text */
function readToken(text) {
  const { token } = readObject(text);
  want(isToken(token));
  return `${token}`;
}

/** @param {string | undefined} text */
function readMove(text) {
  const { within_ms: within = 0 } = readObject(text);
  want(isSpan(within));
  return within;
}

/** The verbs of protocol section 5 that a gateway may use, each with how its argument is read. */
const VERBS = {
  __proto__: null,
  hello: readHello,
  ack: readDigits,
  token: readToken,
  grace: readDigits,
  ping: readEcho,
  pong: readEcho,
  move: readMove,
  end: readEnding,
  close: readEnding,
  bye: () => want(false), // a client's
};

/**
 * Reads a control message without its DLE. An unknown verb has no argument and is for the
 * caller to ignore; what is no verb, or known with a bad argument, is an error.
 *
 * @param {string} text
 * @returns {{ verb: string, argument?: any }}
 */
export function readControl(text) {
  const [, verb, argument] = /^([a-z]{1,16})(?: ([^]*))?$/.exec(text) ?? [];
  want(verb);
  return { verb, argument: /** @type {any} */ (VERBS)[verb]?.(argument) };
}

/** Text that begins with DLE gets one more in front (protocol section 3). @template {string | ArrayBuffer} T @param {T} data */
export const escaped = (data) => (typeof data === 'string' && data.startsWith(DLE) ? DLE + data : data);

const utf8 = new TextEncoder();

/** The length of text in UTF-8; a lone surrogate is sent as U+FFFD. @param {string} text */
export const utf8Length = (text) => utf8.encode(text).length;

/** @param {any} data text, ArrayBuffer, view or Blob */
export const sizeOf = (data) => (typeof data === 'string' ? utf8Length(data) : (data.byteLength ?? data.size ?? 0));
