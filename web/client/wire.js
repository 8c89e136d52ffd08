export const VERSION = 'reseat.v1';
export const REFUSALS = 'reseat.refusals';
export const DLE = '\x10';

/** protocol section 5: how much may come before an ack is due. */
export const ACK_AFTER = Object.freeze({ messages: 32, bytes: 64 * 1024 });

// The words of reseat.v1, as pure functions.

/** @typedef {import('./types.js').Verdict} Verdict */

/** What the gateway must not send. Nobody reads its text. */
class WireError extends Error {}

/** @param {unknown} good @returns {asserts good} */
function want(good) {
  if (!good) throw new WireError();
}

/** @param {unknown} value @returns {value is number} */
const isCount = (value) => Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0;

/** @param {unknown} value @returns {value is number} */
const isSpan = (value) => Number.isFinite(value) && /** @type {number} */ (value) >= 0;

/** @param {unknown} value */
export const isToken = (value) => typeof value === 'string' && /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(value);

/** @param {string | undefined} text @returns {any} */
function readObject(text) {
  want(text !== undefined && text.startsWith('{'));
  try {
    return JSON.parse(text);
  } catch {
    throw new WireError();
  }
}

/** @param {string | undefined} text */
function readDigits(text) {
  want(text !== undefined && /^\d{1,16}$/.test(text));
  return Number(text);
}

/** @param {string | undefined} text */
function readEcho(text) {
  want(text === undefined || /^[^\0-\x1f\x7f-\x9f]{1,32}$/u.test(text));
  return text === undefined ? '' : ` ${text}`;
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
    answer_ms: answer,
    protocol = '',
    limits,
    moved,
  } = readObject(text);
  want(isToken(token));
  want([received, lost, replay].every(isCount) && [grace, heartbeat, answer ?? 0].every(isSpan));
  const { unacked_messages: messages, unacked_bytes: bytes } = limits ?? {};
  return {
    session: String(session),
    token: String(token),
    received,
    lost,
    replay,
    grace,
    heartbeat,
    answer: answer ?? 0,
    rules: answer !== undefined, // a gateway of the third edition or newer
    moved: moved === 'failover',
    protocol: String(protocol ?? ''),
    window: { messages: isCount(messages) ? messages : Infinity, bytes: isCount(bytes) ? bytes : Infinity },
  };
}

/** @typedef {ReturnType<typeof readHello>} Hello */

/**
 * What of a hello holds until the next one.
 * @typedef {Pick<Hello, 'session' | 'token' | 'grace' | 'heartbeat' | 'answer' | 'rules' | 'window'>} Terms
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
  return String(token);
}

/** @param {string | undefined} text */
function readMove(text) {
  const { within_ms: within = 0 } = readObject(text);
  want(isSpan(within));
  return within;
}

/** The verbs of protocol section 5 that a gateway may use, each with how its argument is read. */
const VERBS = Object.freeze({
  hello: readHello,
  ack: readDigits,
  token: readToken,
  grace: readDigits,
  ping: readEcho,
  pong: readEcho,
  move: readMove,
  end: readEnding,
  close: readEnding,
});

/**
 * Reads a control message without its DLE. An unknown verb has no argument and is for the
 * caller to ignore; what is no verb, or known with a bad argument, is a WireError.
 *
 * @param {string} text
 * @returns {{ verb: string, argument?: any }}
 */
export function readControl(text) {
  const [, verb, argument] = /^([a-z]{1,16})(?: ([^]*))?$/.exec(text) ?? [];
  want(verb);
  want(verb !== 'bye');
  const read = Object.hasOwn(VERBS, verb) ? VERBS[/** @type {keyof typeof VERBS} */ (verb)] : undefined;
  return read ? { verb, argument: read(argument) } : { verb };
}

/** Text that begins with DLE gets one more in front (protocol section 3). @template {string | ArrayBuffer} T @param {T} data */
export const escaped = (data) => (typeof data === 'string' && data.startsWith(DLE) ? DLE + data : data);

/** The length of text in UTF-8; a lone surrogate is sent as U+FFFD. @param {string} text */
export function utf8Length(text) {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x80) continue;
    if (unit >= 0xd800 && unit < 0xdc00 && (text.charCodeAt(i + 1) & 0xfc00) === 0xdc00) i++; // 2 units, 4 bytes
    bytes += unit < 0x800 ? 1 : 2;
  }
  return bytes;
}

/** @param {any} data text, ArrayBuffer, view or Blob */
export const sizeOf = (data) => (typeof data === 'string' ? utf8Length(data) : (data.byteLength ?? data.size ?? 0));
