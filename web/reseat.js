// @ts-check
/**
 * Reseat's client. A `ReseatSocket` stands in for `WebSocket`; behind it is a session that
 * outlives its connections (protocol `reseat.v1`): what the page sent and was sent comes
 * through exactly once and in order, however often the connection is lost.
 *
 * Downward: Connection -> Session (counts, throws duplicates away, acks) -> event.
 * Upward: send() -> Outbox (numbers, keeps until acked) -> Connection.
 *
 * The module does nothing when it is imported, keeps nothing in shared storage (a
 * duplicated tab can steal no session) and needs no window: pages, workers, Node, Deno, Bun.
 */

const VERSION = 'reseat.v1';
const DLE = '\x10';
const INSTALLED = Symbol.for('reseat.installed');
const PLAIN_ONLY = Symbol('reseat.plain');

/** Every time span of the client, in milliseconds. */
const MS = Object.freeze({
  firstHello: 5_000, // protocol section 2: none by then, and the server does not know us
  resumeHello: 16_000, // protocol section 2: at least 15 s after the 101
  connect: 4_000, // to have the 101 of a resume, on all but slow links
  connectMax: 15_000, // and on any
  lostSyns: 3_500, // until the third SYN of a connection has gone out
  ack: 800, // protocol section 5: 1 s after the oldest unacked message, less the way
  answer: 5_000, // protocol section 5: for an answer, at least, while no round trip is known
  quiet: 2_000, // a lively connection is not silent for that long
  probe: 2_000, // for the answer to a ping of suspicion, or after the page or the network has come back
  beside: 4_000, // protocol section 5: between two attempts beside a suspected connection
  window: 30_000, // gaps between messages are remembered this long, or up to twice that
  budget: 30_000, // between two pings that turned out to be needless
  jitter: 5_000, // the max between the starts of two attempts
  breath: 50, // the min between them
  offline: 10_000, // pause before an attempt while the browser says that it is offline
  closing: 2_000, // between `end` or `close` and the Close frame
  farewell: 10_000, // protocol section 5: what the gateway gives the upstream after `bye`
  settled: 5_000, // a connection that held this long was a good one
  slept: 5_000, // a timer later than this: page or machine slept
  paused: 50, // a timer later than this: the page was busy, or is hidden
  moment: 250, // for what waits in a page that was busy
});

/** protocol section 5: how much may come before an ack is due. */
const ACK_AFTER = Object.freeze({ messages: 32, bytes: 64 * 1024 });

/**
 * Where a session stands. `detached` has no connection, `suspected` has one that may be
 * dead and stays in use; in both an attempt may be under way. The application sees both as
 * detached.
 *
 *     connecting -> attached   the first hello
 *     connecting -> plain      the server does not know reseat.v1
 *     attached   -> detached   drop, silence, Close without verdict
 *     attached   -> suspected  a lively connection is silent and answers no ping
 *     suspected  -> attached   it speaks (a false alarm), or the hello of a resume
 *     suspected  -> detached   as for attached
 *     detached   -> attached   the hello of a resume
 *     attached   -> attached   the hello of a move
 *     any        -> ended
 */
const State = Object.freeze({
  CONNECTING: 'connecting',
  ATTACHED: 'attached',
  SUSPECTED: 'suspected',
  DETACHED: 'detached',
  PLAIN: 'plain',
  ENDED: 'ended',
});

/**
 * Heartbeats by name. Engine.IO, protocol revision 4: ping and pong packets. y-websocket: an
 * awareness update (message type 1, 1 byte long) with no entries, which changes nothing.
 * @type {Readonly<Record<string, Keepalive>>}
 */
const KEEPALIVES = Object.freeze({
  'engine.io': { receive: '2', answer: '3', every: 5_000 },
  'y-websocket': { receive: new Uint8Array([1, 1, 0]), every: 5_000 },
});

const ReadyState = Object.freeze({ CONNECTING: 0, OPEN: 1, CLOSING: 2, CLOSED: 3 });

/** What a connection was opened for. */
const Kind = Object.freeze({ FIRST: 'first', RESUME: 'resume', PLAIN: 'plain' });

/**
 * @typedef {object} ReseatOptions
 * @property {any} [WebSocket] the transport's constructor; by default `globalThis.WebSocket` as it was at import
 * @property {boolean} [fallback] false: never open a connection without the offer of `reseat.v1`
 * @property {'engine.io' | 'y-websocket' | Keepalive} [keepalive] a heartbeat of the game server's own that stands in for it while detached
 * @property {string} [token] of a session that was made ahead (`POST /sessions`): the first connection resumes it
 * @property {Partial<ReseatRuntime>} [runtime] the surroundings, for tests
 */

/**
 * A heartbeat of the game server's own, for a client library that takes its connection for
 * dead without it. While detached, and after a sleep, the library is given one every so
 * often, and its answer goes nowhere: the gateway answers the server's (`--keepalive-reply`).
 *
 * @typedef {object} Keepalive
 * @property {string | BufferSource} receive the message that the library waits for
 * @property {string} [answer] the text message that it answers, if it does
 * @property {number} every milliseconds
 */

/**
 * @typedef {object} ReseatRuntime
 * @property {(run: () => void, ms: number) => any} setTimeout
 * @property {(timer: any) => void} clearTimeout
 * @property {() => number} now milliseconds of a clock that is never set
 * @property {() => number} wall milliseconds of a clock that runs on while the machine sleeps
 * @property {() => number} random in [0, 1)
 * @property {any} window where online, pageshow and pagehide are heard
 * @property {any} document where visibilitychange, freeze and resume are heard
 * @property {any} navigator whose `onLine` is asked
 * @property {string | undefined} base what a relative URL is relative to
 * @property {string} module the URL of this module
 * @property {Set<string>} gateways origins that have sent a hello
 * @property {(state: string, why: string) => void} trace hears every change of state
 */

/**
 * @typedef {object} InstallOptions
 * @property {((url: string) => boolean) | RegExp} [match] the absolute ws: or wss: URLs to stand in for; all by default
 * @property {boolean} [hideOffline] keep the window's `offline` event from listeners that are added later
 */

/** @typedef {{ attempt: number, since: number }} DetachDetail `since`: the last sign of life, in milliseconds since 1970 */
/** @typedef {{ replay: number, lost: number, ms: number }} ResumeDetail `ms` since the last sign of life */
/** @typedef {string | ArrayBuffer | Blob} Incoming */
/** @typedef {{ code: number, reason: string, wasClean: boolean, error: boolean }} Ending */
/** @typedef {{ code: number, reason: string, retry: boolean, after: number }} Verdict */
/** @typedef {{ code: number, reason: string, bare: boolean }} Farewell */

// The platform's parts, as they were at import.

/** The WebSocket there is, beneath whatever a copy of this module has installed. @returns {any} */
const platformWebSocket = () => {
  const { WebSocket } = /** @type {any} */ (globalThis);
  return WebSocket?.[INSTALLED]?.native ?? WebSocket;
};

const NativeWebSocket = platformWebSocket();

/** @type {typeof CloseEvent} */
const CloseEventHere = globalThis.CloseEvent ?? /** @type {any} */ (class CloseEvent extends Event {
  /** @param {string} type @param {CloseEventInit} [init] */
  constructor(type, init = {}) {
    super(type, init);
    this.code = init.code ?? 0;
    this.reason = init.reason ?? '';
    this.wasClean = init.wasClean ?? false;
  }
});

/** An event of Reseat's own: its members stand both on the event and in `detail`. @template T */
class ReseatEvent extends Event {
  /** @param {string} type @param {T} detail */
  constructor(type, detail) {
    super(type);
    this.detail = detail;
    Object.assign(this, detail);
  }
}

/** @type {Set<string>} */
const GATEWAYS = new Set();

/** @param {Partial<ReseatRuntime>} [given] @returns {ReseatRuntime} */
function runtimeOf(given) {
  const here = /** @type {any} */ (globalThis);
  return {
    setTimeout: (run, ms) => here.setTimeout(run, ms),
    clearTimeout: (timer) => here.clearTimeout(timer),
    now: () => here.performance.now(),
    wall: () => Date.now(),
    random: () => Math.random(),
    window: here,
    document: here.document,
    navigator: here.navigator,
    base: here.document?.baseURI ?? here.location?.href,
    module: import.meta.url,
    gateways: GATEWAYS,
    trace: () => {},
    ...given,
  };
}

// The words of reseat.v1, as pure functions.

/** What the gateway must not send. */
class WireError extends Error {}

/** @param {unknown} good @param {string} wanted @returns {asserts good} */
function want(good, wanted) {
  if (!good) throw new WireError(wanted);
}

/** @param {unknown} value @returns {value is number} */
const isCount = (value) => Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0;

/** @param {unknown} value @returns {value is number} */
const isSpan = (value) => Number.isFinite(value) && /** @type {number} */ (value) >= 0;

/** @param {unknown} value */
const isToken = (value) => typeof value === 'string' && /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(value);

/** @param {string | undefined} text @returns {any} */
function readObject(text) {
  want(text !== undefined && text.startsWith('{'), 'a JSON object');
  try {
    return JSON.parse(text);
  } catch {
    throw new WireError('valid JSON');
  }
}

/** @param {string | undefined} text */
function readDigits(text) {
  want(text !== undefined && /^\d{1,16}$/.test(text), '1 to 16 digits');
  return Number(text);
}

/** @param {string | undefined} text */
function readEcho(text) {
  want(text === undefined || /^[^\0-\x1f\x7f-\x9f]{1,32}$/u.test(text), 'up to 32 characters');
  return text === undefined ? '' : ` ${text}`;
}

/** @param {string | undefined} text */
function readHello(text) {
  const { session = '', token, received = 0, lost = 0, replay = 0, grace_ms: grace = 30_000, heartbeat_ms: heartbeat = 15_000, answer_ms: answer = 0, protocol = '', limits } = readObject(text);
  want(isToken(token), 'a token');
  want([received, lost, replay].every(isCount) && [grace, heartbeat, answer].every(isSpan), 'counts and time spans');
  const { unacked_messages: messages, unacked_bytes: bytes } = limits ?? {};
  return {
    session: String(session),
    token: String(token),
    received,
    lost,
    replay,
    grace,
    heartbeat,
    answer,
    protocol: String(protocol ?? ''),
    window: { messages: isCount(messages) ? messages : Infinity, bytes: isCount(bytes) ? bytes : Infinity },
  };
}

/** @param {string | undefined} text @returns {Verdict} */
function readEnding(text) {
  const { code, reason = '', retry = true, retry_after_ms: after = 0 } = readObject(text);
  want(isCount(code) && code < 65_536 && typeof reason === 'string', 'a code and a reason');
  return { code, reason, retry: retry !== false, after: isSpan(after) ? after : 0 };
}

/** @param {string | undefined} text */
function readToken(text) {
  const { token } = readObject(text);
  want(isToken(token), 'a token');
  return String(token);
}

/** @param {string | undefined} text */
function readMove(text) {
  const { within_ms: within = 0 } = readObject(text);
  want(isSpan(within), 'a time span');
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
function readControl(text) {
  const [, verb, argument] = /^([a-z]{1,16})(?: ([^]*))?$/.exec(text) ?? [];
  want(verb, 'a verb');
  want(verb !== 'bye', 'a verb of the gateway');
  const read = Object.hasOwn(VERBS, verb) ? VERBS[/** @type {keyof typeof VERBS} */ (verb)] : undefined;
  return read ? { verb, argument: read(argument) } : { verb };
}

/** Text that begins with DLE gets one more in front (protocol section 3). @template {string | ArrayBuffer} T @param {T} data */
const escaped = (data) => (typeof data === 'string' && data.startsWith(DLE) ? DLE + data : data);

/** The length of text in UTF-8; a lone surrogate is sent as U+FFFD. @param {string} text */
function utf8Length(text) {
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
const sizeOf = (data) => (typeof data === 'string' ? utf8Length(data) : data.byteLength ?? data.size ?? 0);

/**
 * When to try again: at once after a good connection, then after a random part of a span
 * that doubles from 1 s to 5 s. Three connections in a row that came to nothing are
 * forgiven; after that a new hello no longer means that the next attempt comes at once.
 */
class Pacer {
  #random;
  #tries = 0;
  #barren = 0;

  /** @param {() => number} random */
  constructor(random) {
    this.#random = random;
  }

  /** The pause before the next attempt, in milliseconds. */
  next() {
    const tries = this.#tries++;
    return tries === 0 ? 0 : Math.max(MS.breath, this.#random() * Math.min(MS.jitter, 1000 * 2 ** (tries - 1)));
  }

  /** A connection that had its hello is lost. @param {boolean} useful whether it held, or carried anything new */
  lost(useful) {
    this.#barren = useful ? 0 : this.#barren + 1;
    this.#tries = Math.max(0, this.#barren - 3);
  }
}

/** A timer that knows by how much it is late: by the clock that runs on in sleep, too. */
class Alarm {
  #runtime;
  #ring;
  #retries;
  /** @type {any} */
  #timer;
  #mono = Infinity;
  #wall = Infinity;

  /**
   * @param {ReseatRuntime} runtime
   * @param {(late: boolean) => void} ring
   * @param {number} retries how often it rings MS.moment later instead where it is late: the page
   *   was blocked, and what would prove this alarm wrong may wait to be read. Not more often,
   *   since timers of hidden pages are always late.
   */
  constructor(runtime, ring, retries) {
    this.#runtime = runtime;
    this.#ring = ring;
    this.#retries = retries;
  }

  get armed() {
    return this.#mono !== Infinity;
  }

  /** Milliseconds since it was due: negative before that, -Infinity when it is not set. */
  get late() {
    return this.armed ? Math.max(this.#runtime.now() - this.#mono, this.#runtime.wall() - this.#wall) : -Infinity;
  }

  /** @param {number} ms @param {number} [retries] */
  set(ms, retries = this.#retries) {
    this.clear();
    const wait = Math.min(ms, 2 ** 31 - 1);
    this.#mono = this.#runtime.now() + wait;
    this.#wall = this.#runtime.wall() + wait;
    this.#timer = this.#runtime.setTimeout(() => {
      const { late } = this;
      if (retries > 0 && late > MS.paused && late <= MS.slept) return this.set(MS.moment, retries - 1);
      this.clear();
      return this.#ring(late > MS.slept);
    }, wait);
  }

  /** From here on it is not late: that has been seen to. */
  forgive() {
    if (this.late <= 0) return;
    this.#mono = this.#runtime.now();
    this.#wall = this.#runtime.wall();
  }

  clear() {
    if (!this.armed) return;
    this.#runtime.clearTimeout(this.#timer);
    this.#mono = this.#wall = Infinity;
  }
}

/**
 * What the application sent and the gateway has not acked. Messages are numbered from 1.
 * Invariant: acked <= received <= cursor <= last and acked <= received <= handed <= last,
 * where `received` is what the gateway said it holds, `cursor` the newest number given to
 * the present connection, and `handed` the newest ever given to any.
 */
class Outbox {
  /** @type {Map<number, { data: string | ArrayBuffer | null, bytes: number }>} */
  #kept = new Map();
  #last = 0;
  #acked = 0;
  #received = 0;
  #cursor = 0;
  #handed = 0;
  #inFlight = 0; // bytes of (acked, cursor]
  #waiting = 0; // bytes of (handed, last]

  /** Bytes that no connection was given yet. */
  get waiting() {
    return this.#waiting;
  }

  /** Whether the present connection was given anything that is not acked. */
  get owed() {
    return this.#cursor > this.#received;
  }

  /** Whether the present connection was given everything. */
  get drained() {
    return this.#cursor === this.#last;
  }

  /**
   * Takes a message; `null` stands for data that is still being read.
   * @param {string | ArrayBuffer | null} data
   * @param {number} bytes
   */
  add(data, bytes) {
    const entry = { data, bytes };
    this.#kept.set(++this.#last, entry);
    this.#waiting += bytes;
    return entry;
  }

  /**
   * The next message for the present connection, or undefined while there is none, it is
   * still being read, or the window is full. One message alone always fits.
   * @param {{ messages: number, bytes: number }} window
   */
  next(window) {
    const entry = this.#kept.get(this.#cursor + 1);
    if (!entry || entry.data === null) return undefined;
    const unacked = this.#cursor - this.#acked;
    if (unacked > 0 && (unacked >= window.messages || this.#inFlight + entry.bytes > window.bytes)) return undefined;
    this.#cursor++;
    this.#inFlight += entry.bytes;
    if (this.#cursor > this.#handed) {
      this.#handed = this.#cursor;
      this.#waiting -= entry.bytes;
    }
    return entry.data;
  }

  /** The gateway has taken in everything up to n. Returns false where that cannot be. @param {number} n */
  ack(n) {
    if (n > this.#cursor) return false;
    while (this.#acked < n) {
      this.#inFlight -= this.#kept.get(++this.#acked)?.bytes ?? 0;
      this.#kept.delete(this.#acked);
    }
    this.#received = Math.max(this.#received, this.#acked);
    return true;
  }

  /** As if all that the connection was given were acked: a plain server acks nothing. */
  settle() {
    this.ack(this.#cursor);
  }

  /** Whether a hello may say that it has received n. @param {number} n */
  admits(n) {
    return n >= this.#received && n <= this.#handed;
  }

  /**
   * A new connection begins after message n, which the gateway holds: the data up to there
   * is forgotten, the sizes are kept, since only an ack frees the window.
   * @param {number} n
   */
  rewind(n) {
    while (this.#received < n) {
      const entry = this.#kept.get(++this.#received);
      if (entry) entry.data = '';
    }
    this.#cursor = n;
    this.#inFlight = 0;
    for (let i = this.#acked + 1; i <= n; i++) this.#inFlight += this.#kept.get(i)?.bytes ?? 0;
  }

  /** Forgets the data of all messages, and of none its size. */
  drop() {
    this.#kept.clear();
  }
}

/**
 * Liveness of the live connection: the answer rule and suspicion of protocol section 5. The
 * session reports what it sends and receives; `next` says what to do about silence, and
 * when. There is no clock and no timer here: every `t` is the session's time in milliseconds.
 */
class Liveness {
  /** Whether the page itself was blocked until now: then times say nothing of the line. */
  paused = false;

  // Learned over all connections of the session.
  rtt = 0; // smoothed as in RFC 6298; 0: not known
  #silences = 0; // connections in a row that ended in silence, 3 at most
  #gaps = [0, 0]; // the longest and the second longest gap between data messages since #newer
  #older = [0, 0]; // the same, of the time before
  #newer = -Infinity;
  #lively = false;
  #credit = -Infinity; // each check costs one MS.budget, and this may be one ahead of the clock

  // Of the live connection.
  #from = 0; // silence counts from here
  #owed = Infinity; // since when something is unanswered
  /** @type {Map<number, number>} */
  #pings = new Map(); // the unanswered ones: when each was sent
  #first = Infinity; // when the first ping since anything was heard was sent
  #newest = -Infinity; // and the newest one
  #check = 0; // number of the check (a ping out of suspicion) that neither a pong nor data has answered
  #data = NaN; // when the newest data message came

  /** protocol section 5: all times double with each connection in a row that ended in silence, up to eightfold. */
  get #scale() {
    return 2 ** this.#silences;
  }

  /** How long nothing may be heard at all. @param {{ heartbeat: number }} said */
  limit({ heartbeat }) {
    return heartbeat > 0 ? 2 * heartbeat * this.#scale : Infinity;
  }

  /** A connection has its hello. @param {number} t */
  begin(t) {
    this.reset(t);
    this.#owed = Infinity;
  }

  /** A connection has ended. @param {boolean} silent */
  end(silent) {
    this.#silences = silent ? Math.min(this.#silences + 1, 3) : 0;
  }

  /** The page slept: all clocks start anew, and no gap is measured across that. @param {number} t */
  reset(t) {
    this.heard(t);
    this.#pings.clear();
    this.#check = 0;
    this.#data = NaN;
  }

  /** Anything at all came. @param {number} t */
  heard(t) {
    this.#from = t;
    this.#first = Infinity;
    this.#newest = -Infinity;
  }

  /** A data message came. @param {number} t @param {boolean} fresh whether it had not come before */
  received(t, fresh) {
    if (fresh) this.#silences = 0;
    // A stall that was long enough for a check, and that data ends, is no usual gap.
    if (t >= this.#data && !this.paused && !this.#check) this.#learn(t, t - this.#data);
    this.#data = t;
    this.#check = 0;
    this.#lively = this.#newer > -Infinity;
  }

  /** @param {number} t @param {number} gap */
  #learn(t, gap) {
    if (t - this.#newer >= MS.window) {
      this.#older = t - this.#newer < 2 * MS.window ? this.#gaps : [0, 0];
      this.#gaps = [0, 0];
      this.#newer = t;
    }
    const [longest, second] = this.#gaps;
    this.#gaps = gap > longest ? [gap, longest] : [longest, Math.max(second, gap)];
  }

  /** The longest usual gap: another one was at least as long. One alone is an accident. */
  get #usual() {
    return Math.max(Math.min(this.#gaps[0], this.#older[0]), this.#gaps[1], this.#older[1]);
  }

  /** Something was sent that the gateway has to answer. @param {number} t */
  sent(t) {
    this.#owed = Math.min(this.#owed, t);
  }

  /** All data that was sent is acked. */
  acked() {
    if (this.#pings.size === 0) this.#owed = Infinity;
  }

  /** @param {number} t @param {number} n its number @param {boolean} check whether out of suspicion */
  ping(t, n, check) {
    this.#pings.set(n, t);
    this.#first = Math.min(this.#first, t);
    this.#newest = t;
    this.sent(t);
    if (!check) return;
    this.#check = n;
    this.#credit = Math.max(this.#credit, t) + MS.budget;
  }

  /** The answer to ping n came, and so to all before it. @param {number} t @param {number} n */
  pong(t, n) {
    const sent = this.#pings.get(n);
    if (sent === undefined) return;
    if (!this.paused) this.rtt = Math.max(1, this.rtt ? this.rtt + (t - sent - this.rtt) / 8 : t - sent);
    for (const older of this.#pings.keys()) if (older <= n) this.#pings.delete(older);
    if (!this.#check || this.#check > n) return;
    // The line was just quiet, and the gap counts. No more checks until data comes, nor soon after.
    this.#check = 0;
    this.#lively = false;
    this.#credit = t + 2 * MS.budget;
  }

  /** A suspicion begins: the check was not needless. Attempts have a limit of their own. */
  suspected() {
    this.#credit = -Infinity;
  }

  /**
   * What to do next if nothing is heard until then: give the connection up, send a ping or
   * a check, or suspect it.
   * @param {{ answer: number, heartbeat: number }} said
   * @param {boolean} suspicious whether the connection may be suspected
   */
  next(said, suspicious) {
    const scale = this.#scale;
    const { answer } = said;
    const trips = 4 * this.rtt * scale;
    let next = { at: this.#from + this.limit(said), what: 'dead' };
    const or = (/** @type {number} */ at, /** @type {string} */ what) => {
      if (at < next.at) next = { at, what };
    };
    if (answer > 0) {
      // A heartbeat that does not come is owed as well.
      const clock = Math.max(this.#from, Math.min(this.#owed, this.#from + this.limit(said) / 2));
      const half = (scale * answer) / 2;
      const limit = this.rtt ? answer : Math.max(answer, MS.answer);
      or(Math.max(clock + scale * limit, this.#first + Math.max(trips, half)), 'dead'); // also of a ping that went late
      or(Math.max(clock, this.#newest) + half, 'ping');
    }
    if (suspicious && this.#lively) {
      const long = this.#from + scale * Math.max(MS.quiet, 4 * this.#usual);
      if (this.#first === Infinity) or(Math.max(long, this.#credit - MS.budget), 'check');
      else or(Math.max(long, this.#first + Math.max(scale * MS.probe, trips)), 'suspect');
    }
    return next;
  }
}

/** One connection, or the attempt at one. Its session's alone. */
class Connection {
  opened = false;
  hello = 0; // which of the session's hellos this connection got; 0: none yet
  last = 0; // number of the newest message that came on it, repeats included
  acked = -1; // the newest ack given on it
  owed = { messages: 0, bytes: 0 }; // what came since
  replay = 0; // replayed messages still to come
  bye = false; // whether bye was said on it
  useful = false; // whether it brought anything new
  owing = false; // an attempt that is made even when the time is over
  errored = false;
  since = 0;
  backlog = 0; // bufferedAmount at the last look
  flowed = false; // whether it was 0 at any time since
  /** @type {Verdict | null} */
  verdict = null;

  /**
   * @param {any} transport
   * @param {string} kind
   * @param {string} token that it resumes with
   * @param {number} stated the N that it resumes with
   */
  constructor(transport, kind, token, stated) {
    this.transport = transport;
    this.kind = kind;
    this.token = token;
    this.stated = stated;
  }

  /** @param {string | ArrayBuffer} data */
  send(data) {
    // A browser complains on its console of what is sent to a closing connection, and drops it.
    if (this.transport.readyState >= ReadyState.CLOSING) return;
    this.flowed ||= !this.transport.bufferedAmount;
    try {
      this.transport.send(data);
    } catch {
      // A connection that is closing takes nothing; its close event follows.
    }
  }

  /** @param {string} verb @param {string} [rest] */
  say(verb, rest = '') {
    this.send(DLE + verb + rest);
  }

  /**
   * Whether the peer goes on taking bytes: some have gone since the last look, and at no
   * time since was there room for all. Where there was, the machine's own buffers took them.
   */
  drains() {
    const { backlog, flowed } = this;
    this.backlog = this.transport.bufferedAmount || 0;
    this.flowed = false;
    return this.backlog < backlog && !flowed;
  }

  /** @param {number} [code] @param {string} [reason] */
  close(code, reason) {
    try {
      if (code === undefined) this.transport.close();
      else this.transport.close(code, reason);
    } catch {
      // Some transports refuse to close before they are open. Nobody listens any more.
    }
  }
}

/** @param {any} transport @param {string} type @param {(event: any) => void} heard */
function listen(transport, type, heard) {
  if (typeof transport.addEventListener === 'function') transport.addEventListener(type, heard);
  else transport[`on${type}`] = heard;
}

/**
 * @typedef {object} Plan what a session is to do; never changes
 * @property {string} url
 * @property {string[]} protocols the application's own
 * @property {string} token '' for none
 * @property {boolean} fallback
 * @property {boolean} plain no offer at all
 * @property {Keepalive | null} keepalive
 * @property {any} Transport
 * @property {ReseatRuntime} runtime
 */

/**
 * @typedef {object} Host what a session tells its socket
 * @property {() => void} opened
 * @property {(data: any) => void} message
 * @property {(ending: Ending) => void} closed
 * @property {(type: string, detail: object) => void} notice
 */

/** @type {Ending} */
const NO_WAY_BACK = { code: 1006, reason: '', wasClean: false, error: true };

/**
 * A Session is what outlives a connection: counts both ways, acks, the way back, the end.
 * It has at most two connections: `live`, which has had its hello, and `attempt`, which has
 * not. What comes from any other one is not listened to.
 */
class Session {
  #plan;
  #host;
  /** @type {string} */
  #state = State.CONNECTING;

  // Connections. `hellos` counts them; `abandoned` is how many there had been when an
  // attempt last ended, by us or by itself, without hello or refusal: it may have reached
  // the gateway, or may reach it yet.
  /** @type {Connection | null} */
  #live = null;
  /** @type {Connection | null} */
  #attempt = null;
  #hellos = 0;
  #abandoned = -1;

  /**
   * The newest hello, with what `token` and `grace` have changed in it since.
   * @type {Pick<ReturnType<typeof readHello>, 'session' | 'token' | 'grace' | 'heartbeat' | 'answer' | 'window'>}
   */
  #said;
  #protocol = '';

  // Counts: `received` downward, the outbox upward.
  #received = 0;
  #out = new Outbox();
  #refused = 0; // bytes given to send() after the end

  // Silence.
  #liveness = new Liveness();
  #heard = 0; // the last sign of life, by the clock that is never set
  #heardWall = 0; // the same, by the wall
  #spoke = false; // the suspected connection did, too late for the attempt to be dropped
  #falseAlarms = 0; // in a row
  #pings = 0; // ever sent
  #probed = 0; // the ping whose answer the probe waits for

  // The way back.
  #pacer;
  #dropped = 0; // when the live connection was given up
  #begun = -Infinity; // when the newest attempt began
  #slowest = 0; // what a connection has taken to its 101, at most
  #tries = 0;
  #owing = false; // an attempt must be made even when the time is over
  #over = false; // the time is over: the attempt under way is the last
  #told = false; // the gateway said when to come back
  #waited = false; // the pause of an offline browser has been kept
  #standIns = 0; // heartbeats that stood in for the game's and were not answered yet
  #moveBy = 0;

  /** @type {Farewell | null} */
  #farewell = null;

  #timers;
  #patience; // an attempt has had its time
  #pace; // the next attempt
  #giveUp; // the way back is closed
  #silence; // nothing was heard for long enough to do something about it
  #probe; // no answer to a ping
  #ackBy; // an ack is due
  #closeBy; // no Close frame came
  #moveAt; // the moment of a move
  #beatAt; // a stand-in for the game's own heartbeat

  /** @param {Plan} plan @param {Host} host */
  constructor(plan, host) {
    /** @param {(this: Session, late: boolean) => void} ring @param {number} [retries] */
    const alarm = (ring, retries = 0) => new Alarm(plan.runtime, (late) => this.#onRing(late, ring), retries);
    this.#plan = plan;
    this.#host = host;
    this.#said = { session: '', token: plan.token, grace: 0, heartbeat: 0, answer: 0, window: { messages: Infinity, bytes: Infinity } };
    this.#pacer = new Pacer(plan.runtime.random);
    this.#timers = [
      (this.#patience = alarm(this.#onPatience, 2)),
      (this.#pace = alarm(this.#tryAgain)),
      (this.#giveUp = alarm(this.#onGiveUp)),
      (this.#silence = alarm(this.#onSilence, 2)),
      (this.#probe = alarm(this.#onProbe, 2)),
      (this.#ackBy = alarm(this.#ack)),
      (this.#closeBy = alarm(this.#onCloseBy)),
      (this.#moveAt = alarm(this.#move)),
      (this.#beatAt = alarm(this.#beat)),
    ];
    this.#attempt = this.#dial(plan.plain ? Kind.PLAIN : Kind.FIRST);
    this.#watchPage('addEventListener');
  }

  get readyState() {
    switch (this.#state) {
      case State.CONNECTING:
        return ReadyState.CONNECTING;
      case State.ENDED:
        return ReadyState.CLOSED;
      case State.PLAIN:
        return this.#farewell || this.#live?.transport.readyState >= ReadyState.CLOSING ? ReadyState.CLOSING : ReadyState.OPEN;
      default:
        return this.#farewell || this.#live?.verdict?.retry === false ? ReadyState.CLOSING : ReadyState.OPEN;
    }
  }

  get id() {
    return this.#said.session || null;
  }

  get detached() {
    return this.#state === State.DETACHED || this.#state === State.SUSPECTED;
  }

  get protocol() {
    return this.#protocol;
  }

  get extensions() {
    return this.#state === State.PLAIN ? String(this.#live?.transport.extensions ?? '') : '';
  }

  get bufferedAmount() {
    const below = this.#state === State.PLAIN ? this.#live?.transport.bufferedAmount || 0 : 0;
    return this.#out.waiting + this.#refused + below;
  }

  /**
   * Takes a message; a Blob comes as the promise of its bytes and keeps its place.
   * @param {string | ArrayBuffer | Promise<ArrayBuffer>} data
   * @param {number} bytes
   */
  send(data, bytes) {
    if (this.#standIns > 0 && data === this.#plan.keepalive?.answer) {
      this.#standIns--;
      return;
    }
    if (this.readyState !== ReadyState.OPEN) {
      this.#refused += bytes;
      if (data instanceof Promise) data.catch(() => {});
    } else if (data instanceof Promise) {
      const entry = this.#out.add(null, bytes);
      data.then((read) => {
        entry.data = read;
        this.#pump();
      }, () => this.#unreadable());
    } else {
      this.#out.add(data, bytes);
      this.#pump();
    }
  }

  /** @param {number | undefined} code @param {string} reason */
  close(code, reason) {
    if (this.readyState >= ReadyState.CLOSING) return;
    if (this.#state === State.CONNECTING) return this.#finish(NO_WAY_BACK);
    this.#farewell = { code: code ?? 1000, reason, bare: code === undefined && reason === '' };
    if (this.#state === State.DETACHED) {
      const left = this.#dropped + this.#said.grace - this.#plan.runtime.now();
      if (left > 0) this.#giveUp.set(left);
    }
    this.#pump();
  }

  // ---- connections

  /** @param {string} state @param {string} why */
  #enter(state, why) {
    this.#state = state;
    this.#plan.runtime.trace(state, why);
  }

  /** @param {string} kind */
  #dial(kind) {
    const { Transport, url, protocols, runtime } = this.#plan;
    const transport = new Transport(url, kind === Kind.PLAIN ? protocols : this.#offer());
    try {
      transport.binaryType = 'arraybuffer'; // so that every message has its size and its turn at once
    } catch {
      // A transport without it delivers what it likes.
    }
    const conn = new Connection(transport, kind, this.#said.token, this.#received);
    conn.since = runtime.now();
    const current = () => conn === this.#live || conn === this.#attempt;
    listen(transport, 'open', () => current() && this.#onOpen(conn));
    listen(transport, 'message', (event) => current() && this.#onMessage(conn, event.data));
    listen(transport, 'error', () => (conn.errored = true));
    listen(transport, 'close', (event) => current() && this.#onClose(conn, event));
    return conn;
  }

  /** protocol section 2: the application's subprotocols first. */
  #offer() {
    const own = this.#plan.protocols.filter((name) => !name.startsWith('reseat.'));
    return this.#said.token ? [...own, VERSION, `reseat.token.${this.#said.token}`, `reseat.received.${this.#received}`] : [...own, VERSION];
  }

  /** @param {Connection} conn */
  #onOpen(conn) {
    if (conn.kind === Kind.PLAIN) return this.#becomePlain(conn, 'no offer');
    const chosen = conn.transport.protocol;
    if (chosen && chosen !== VERSION) {
      // A server that does not know reseat.v1 took one of the application's subprotocols.
      if (conn.kind === Kind.FIRST && !this.#said.token && this.#plan.fallback) return this.#becomePlain(conn, 'other subprotocol');
      return this.#broken(conn);
    }
    conn.opened = true;
    this.#slowest = Math.max(this.#slowest, this.#plan.runtime.now() - conn.since);
    this.#patience.set(this.#said.token ? MS.resumeHello : MS.firstHello);
  }

  /** @param {Connection} conn @param {any} data */
  #onMessage(conn, data) {
    if (this.#state === State.PLAIN) return this.#host.message(data);
    const late = this.#late();
    this.#liveness.paused = late > MS.paused;
    if (conn === this.#live && this.#probe.armed) this.#probe.set(this.#probeLimit()); // the answer is behind it, if any comes
    if (conn.verdict) return;
    if (typeof data !== 'string' || !data.startsWith(DLE)) this.#onData(conn, data);
    else if (data.startsWith(DLE, 1)) this.#onData(conn, data.slice(1));
    else this.#onControl(conn, data.slice(1));
    if (conn === this.#live) this.#rearm();
    if (late > MS.slept) this.#wake();
  }

  /** @param {Connection} conn @param {any} data */
  #onData(conn, data) {
    if (!conn.hello) return this.#noHello(conn);
    this.#onHeard();
    const number = ++conn.last;
    this.#liveness.received(this.#heard, number > this.#received);
    conn.owed.messages++;
    conn.owed.bytes += sizeOf(data);
    if (number > this.#received) {
      this.#received = number;
      conn.useful = true;
      if (this.readyState === ReadyState.OPEN) this.#host.message(data);
    }
    if (conn.replay > 0 && --conn.replay === 0) this.#host.notice('replayed', {});
    if (conn !== this.#live) return; // the application or its messages ended it
    if (conn.owed.messages >= ACK_AFTER.messages || conn.owed.bytes >= ACK_AFTER.bytes) this.#ack();
    else if (!this.#ackBy.armed) this.#ackBy.set(MS.ack);
  }

  /** @param {Connection} conn @param {string} text */
  #onControl(conn, text) {
    let message;
    try {
      message = readControl(text);
    } catch {
      return conn.kind === Kind.FIRST && !conn.hello && !text.startsWith('hello') ? this.#noHello(conn) : this.#broken(conn);
    }
    const { verb, argument } = message;
    if (!conn.hello && verb !== 'hello' && verb !== 'close') {
      if (conn.kind === Kind.FIRST || argument !== undefined) this.#noHello(conn);
      return;
    }
    // protocol section 5: a 4409 is no sign of life; it may be what a resume of ours brought about.
    if (conn === this.#live && (verb !== 'close' || argument.code !== 4409)) this.#onHeard();
    switch (verb) {
      case 'hello': return this.#onHello(conn, argument);
      case 'ack': return this.#onAck(conn, argument);
      case 'pong': return this.#onPong(conn, Number(argument));
      case 'token': this.#said.token = argument; return;
      case 'grace': this.#said.grace = argument; return;
      case 'ping': this.#ack(); return conn.say('pong', argument);
      case 'move': return this.#onMove(argument);
      case 'end': return this.#onVerdict(conn, { ...argument, retry: false });
      case 'close': return this.#onCloseVerb(conn, argument);
      // Others: reseat.v1 may grow.
    }
  }

  /** @param {Connection} conn @param {ReturnType<typeof readHello>} hello */
  #onHello(conn, hello) {
    const foreign = this.#said.session !== '' && hello.session !== this.#said.session;
    if (conn.hello || foreign || !this.#out.admits(hello.received)) return this.#broken(conn);
    const first = this.#state === State.CONNECTING;
    const ms = this.#sinceHeard();
    this.#retire(this.#live); // protocol section 8: nothing more is taken from it
    this.#live = conn;
    this.#attempt = null;
    for (const alarm of [this.#patience, this.#pace, this.#giveUp, this.#moveAt]) alarm.clear();
    this.#owing = this.#over = this.#told = this.#waited = false;
    conn.hello = ++this.#hellos;
    conn.since = this.#plan.runtime.now();
    conn.replay = hello.replay;
    conn.last = conn.stated + hello.lost;
    this.#received = Math.max(this.#received, conn.last);
    this.#said = hello;
    this.#enter(State.ATTACHED, 'hello');
    this.#signOfLife();
    this.#liveness.begin(this.#heard);
    this.#ack();
    this.#out.rewind(hello.received);
    this.#pump();
    this.#rearm();
    if (first) return this.#welcome(hello.protocol);
    return this.#resumed(hello.replay, hello.lost, ms);
  }

  /** The first hello has come. @param {string} protocol */
  #welcome(protocol) {
    this.#protocol = protocol;
    this.#plan.runtime.gateways.add(originOf(this.#plan.url));
    if (this.#plan.keepalive) this.#beatAt.set(this.#plan.keepalive.every);
    this.#host.opened();
  }

  /** @param {Connection} conn @param {any} event */
  #onClose(conn, event) {
    const { code = 1006, reason = '', wasClean = false } = event ?? {};
    if (this.#state === State.PLAIN || conn.kind === Kind.PLAIN) {
      return this.#finish({ code, reason, wasClean, error: conn.errored });
    }
    if (conn === this.#attempt) {
      this.#abandon(conn);
      return this.#attemptFailed(conn);
    }
    if (wasClean) this.#signOfLife(); // a Close frame came
    if (conn.verdict?.retry === false) return this.#finishBy(conn.verdict);
    if (conn.bye && this.#farewell && code === this.#farewell.code) return this.#finishBy(this.#farewell);
    return this.#lose('drop');
  }

  /** What the gateway must not send: the connection is no good. @param {Connection} conn */
  #broken(conn) {
    if (conn === this.#attempt) {
      this.#abandon(conn);
      return this.#attemptFailed(conn);
    }
    conn.close();
    conn.useful = false;
    return this.#lose('broken');
  }

  /** Takes leave of a connection that another one has replaced. @param {Connection | null} conn */
  #retire(conn) {
    if (!conn) return;
    const suspected = this.#state === State.SUSPECTED;
    this.#liveness.end(suspected && !this.#spoke);
    if (suspected) this.#falseAlarms = this.#spoke ? this.#falseAlarms + 1 : 0;
    for (const alarm of [this.#silence, this.#probe, this.#ackBy, this.#closeBy]) alarm.clear();
    conn.close();
  }

  /** An attempt is over, of which nobody knows what the gateway makes. @param {Connection} conn */
  #abandon(conn) {
    this.#abandoned = this.#hellos;
    this.#attempt = null;
    this.#patience.clear();
    conn.close();
  }

  // ---- the first connection

  /** What came first was no hello, or nothing came. @param {Connection} conn */
  #noHello(conn) {
    if (this.#state !== State.CONNECTING || !this.#mayFallBack()) return this.#broken(conn);
    this.#abandon(conn);
    return this.#fallBack();
  }

  /** Interface section 4: only where nothing says that a gateway is there. */
  #mayFallBack() {
    const { fallback, url, runtime } = this.#plan;
    const origin = originOf(url);
    return fallback && !this.#said.token && !runtime.gateways.has(origin) && moduleOrigin(runtime.module) !== origin;
  }

  #fallBack() {
    try {
      this.#attempt = this.#dial(Kind.PLAIN);
    } catch {
      this.#finish(NO_WAY_BACK);
    }
  }

  /** From here on it is an ordinary WebSocket. @param {Connection} conn @param {string} why */
  #becomePlain(conn, why) {
    this.#live = conn;
    this.#attempt = null;
    this.#protocol = String(conn.transport.protocol ?? '');
    this.#enter(State.PLAIN, why);
    this.#host.opened();
  }

  // ---- upward

  /** Gives the live connection what it may have, and at the end the farewell. */
  #pump() {
    const conn = this.#live;
    if (!conn || conn.bye || conn.verdict) return;
    for (let data = this.#out.next(this.#said.window); data !== undefined; data = this.#out.next(this.#said.window)) {
      conn.send(this.#state === State.PLAIN ? data : escaped(data));
      if (this.#state === State.PLAIN) this.#out.settle();
      else this.#onSent();
    }
    if (this.#farewell && this.#out.drained) this.#sayBye(conn, this.#farewell);
  }

  /** @param {Connection} conn @param {Farewell} farewell */
  #sayBye(conn, { code, reason, bare }) {
    conn.bye = true;
    if (this.#state === State.PLAIN) return bare ? conn.close() : conn.close(code, reason);
    conn.say('bye', ` ${JSON.stringify({ code, reason })}`);
    this.#onSent();
    this.#closeBy.set(MS.farewell + 2 * this.#said.heartbeat);
  }

  /** @param {Connection} conn @param {number} n */
  #onAck(conn, n) {
    if (!this.#out.ack(n)) return this.#broken(conn);
    conn.useful = true;
    this.#onAnswered();
    this.#pump();
  }

  /** A Blob could not be read: its place can be filled by nothing, so the session ends. */
  #unreadable() {
    if (this.#state === State.ENDED) return;
    if (this.#live) this.#sayBye(this.#live, { code: 1001, reason: 'unreadable Blob', bare: false });
    this.#farewell = null;
    this.#finish(NO_WAY_BACK);
  }

  // ---- downward acks

  /**
   * Acks what came, if that is news. While a resume is under way that stated N, an older
   * connection acks nothing beyond it (protocol section 5).
   */
  #ack() {
    const conn = this.#live;
    if (!conn?.hello || conn.bye || conn.verdict) return;
    const n = this.#attempt ? Math.min(conn.last, this.#attempt.stated) : conn.last;
    if (n > conn.acked) {
      conn.acked = n;
      conn.say('ack', ` ${n}`);
    }
    if (n === conn.last) {
      conn.owed = { messages: 0, bytes: 0 };
      this.#ackBy.clear();
    }
  }

  // ---- liveness

  /** Notes a sign of life, for the times in detach and resume. */
  #signOfLife() {
    this.#heard = this.#plan.runtime.now();
    this.#heardWall = this.#plan.runtime.wall();
  }

  /** Milliseconds since the last one, those that the machine slept included. */
  #sinceHeard() {
    const { now, wall } = this.#plan.runtime;
    return Math.max(now() - this.#heard, wall() - this.#heardWall);
  }

  /** Something came on the live connection. */
  #onHeard() {
    if (this.#state === State.SUSPECTED) this.#falseAlarm();
    this.#signOfLife();
    this.#liveness.heard(this.#heard);
  }

  /** Something was sent that the gateway has to answer. */
  #onSent() {
    this.#liveness.sent(this.#plan.runtime.now());
    this.#rearm();
  }

  /** An ack or a pong came. */
  #onAnswered() {
    if (!this.#out.owed) this.#liveness.acked();
  }

  #next() {
    return this.#liveness.next(this.#said, this.#state === State.ATTACHED && !this.#farewell);
  }

  /**
   * Sets the alarm of silence where it would ring too late. Ringing too early is harmless, so
   * messages hardly ever cost a timer.
   */
  #rearm() {
    const conn = this.#live;
    if (!conn?.hello || conn.verdict) return;
    const left = this.#next().at - this.#plan.runtime.now();
    if (left < -this.#silence.late) this.#silence.set(left);
  }

  /** Does what Liveness says is due. */
  #onSilence() {
    const conn = this.#live;
    if (!conn || conn.verdict) return;
    if (conn.drains()) this.#onHeard();
    const { at, what } = this.#next();
    if (at <= this.#plan.runtime.now()) {
      if (what === 'dead') return this.#declareDead(false);
      if (what === 'suspect') this.#suspect();
      else this.#sendPing(what === 'check');
      if (this.#overdue) this.#beat(false);
    }
    this.#rearm();
  }

  /**
   * An alarm rings. One that is late says that the page or the machine slept: that comes first.
   * @param {boolean} late
   * @param {(this: Session, late: boolean) => void} ring
   */
  #onRing(late, ring) {
    if (late) this.#wake();
    if (this.#state !== State.ENDED) ring.call(this, late);
  }

  /** Gives up the live connection for its silence. @param {boolean} slept the page slept meanwhile: the times do not double */
  #declareDead(slept) {
    this.#live?.close();
    this.#lose('silence', { silent: !slept });
  }

  /** @param {boolean} check whether it is sent out of suspicion */
  #sendPing(check) {
    this.#live?.say('ping', ` ${++this.#pings}`);
    this.#liveness.ping(this.#plan.runtime.now(), this.#pings, check);
  }

  /** How long #ping waits for the answer. */
  #probeLimit() {
    return Math.max(MS.probe, 4 * this.#liveness.rtt);
  }

  /**
   * Asks for an answer, soon. Only the answer to this very ping will do, or to a later one:
   * whatever else comes now may have waited on this side since before the page slept.
   */
  #ping() {
    if (!this.#live?.hello || this.#probe.armed) return;
    this.#sendPing(false);
    this.#probed = this.#pings;
    this.#probe.set(this.#probeLimit());
    this.#rearm();
  }

  /** @param {Connection} conn @param {number} n */
  #onPong(conn, n) {
    if (conn !== this.#live) return;
    this.#liveness.pong(this.#heard, n);
    this.#onAnswered();
    if (n >= this.#probed) this.#probe.clear();
  }

  /** @param {boolean} late */
  #onProbe(late) {
    if (late) return; // what slept through the answer has asked again
    this.#live?.close();
    this.#lose('no answer');
  }

  /**
   * Whether the gateway should have been heard by now, and has had half its time to answer. A
   * library that was last served before this silence may not wait until it is over.
   */
  get #overdue() {
    const { heartbeat, answer } = this.#said;
    return heartbeat > 0 && answer > 0 && this.#sinceHeard() >= heartbeat + answer / 2;
  }

  /** Keeps a library's own watchdog quiet, while only the gateway knows the game server. @param {boolean} late */
  #beat(late) {
    const { keepalive } = this.#plan;
    if (!keepalive) return;
    this.#beatAt.set(keepalive.every);
    if (this.readyState !== ReadyState.OPEN || (this.#state === State.ATTACHED && !late && !this.#overdue)) return;
    const { receive, answer } = keepalive;
    if (answer !== undefined) this.#standIns = 1; // an answer goes to the newest
    this.#host.message(typeof receive === 'string' ? receive : bytesOf(receive));
  }

  /** By how much the alarm that should have rung first is late; negative: none is. */
  #late() {
    return this.#timers.reduce((max, { late }) => Math.max(max, late), -Infinity);
  }

  /** Page or machine slept: what is known of the network is old. */
  #wake() {
    for (const alarm of this.#timers) alarm.forgive();
    const slept = this.#attempt;
    if (this.#live && this.#sinceHeard() >= this.#liveness.limit(this.#said)) this.#declareDead(true);
    if (this.#state === State.DETACHED) {
      if (slept && slept === this.#attempt) this.#abandon(slept);
      this.#owing = true;
      this.#tryAgain();
    } else if (this.#live) {
      this.#liveness.reset(this.#plan.runtime.now());
      this.#probe.clear(); // an answer may have been slept through
      this.#ping();
    }
  }

  /** Whether the gateway named a time to come back that is still to come. */
  #heldBack() {
    return this.#told && this.#pace.late < 0 && this.#pace.armed;
  }

  // ---- the way back

  /**
   * The live connection is lost. Where it was suspected, detach has fired already, and an
   * attempt under way goes on as the resume.
   * @param {string} why
   */
  #lose(why, { silent = false, after = 0 } = {}) {
    const conn = this.#live;
    if (!conn) return;
    const { now } = this.#plan.runtime;
    const known = this.#state === State.SUSPECTED;
    this.#live = null;
    for (const alarm of [this.#silence, this.#probe, this.#ackBy, this.#closeBy, this.#moveAt]) alarm.clear();
    this.#liveness.end(silent);
    if (known && !this.#spoke) this.#falseAlarms = 0;
    this.#pacer.lost(conn.useful || (why !== 'broken' && now() - conn.since >= MS.settled));
    this.#dropped = now();
    this.#owing = true;
    this.#enter(State.DETACHED, why);
    this.#giveUp.set(this.#farewell ? this.#said.grace : this.#said.grace + 2 * this.#said.heartbeat);
    if (known) return this.#comeBack(Math.max(after, this.#heldBack() ? -this.#pace.late : 0));
    this.#tries = 0;
    return this.#failed(after);
  }

  /**
   * The live connection was lively, is silent, and answers no ping. It stays in use both ways
   * until a resume beside it has its hello.
   */
  #suspect() {
    this.#liveness.suspected();
    this.#spoke = false;
    this.#tries = 0;
    this.#enter(State.SUSPECTED, 'silence');
    this.#failed(0);
  }

  /**
   * Something came on the suspected connection. An attempt without its 101 is dropped. After
   * the 101 the attempt goes on, since the gateway may have superseded this connection.
   */
  #falseAlarm() {
    this.#spoke = true;
    if (this.#attempt?.opened) return;
    if (this.#attempt) this.#abandon(this.#attempt);
    this.#falseAlarms++;
    this.#pace.clear();
    this.#enter(State.ATTACHED, 'false alarm');
    this.#resumed(0, 0, this.#sinceHeard());
  }

  /** @param {number} replay @param {number} lost @param {number} ms */
  #resumed(replay, lost, ms) {
    this.#host.notice('resume', { replay, lost, ms });
    if (replay === 0) this.#host.notice('replayed', {});
  }

  /** The connection is lost, or an attempt has failed. @param {number} after what the gateway asked for, or 0 */
  #failed(after) {
    this.#host.notice('detach', { attempt: ++this.#tries, since: this.#heardWall });
    if (this.#tries === 1) this.#beat(false); // the library has waited for some time already
    this.#comeBack(after);
  }

  /**
   * Sees to the next attempt. The pause counts from the start of the one before: after one
   * that ran out of time the next follows at once.
   * @param {number} after what the gateway asked for, or 0
   */
  #comeBack(after) {
    if (this.#attempt || !this.detached) return;
    const least = this.#state === State.SUSPECTED ? MS.beside * 2 ** this.#falseAlarms : this.#pacer.next();
    const pause = Math.max(after, this.#begun + least - this.#plan.runtime.now(), 0);
    this.#told = after > 0;
    if (this.#told && this.#state === State.DETACHED) {
      this.#owing = true;
      this.#over = false;
      if (-this.#giveUp.late < pause || !this.#giveUp.armed) this.#giveUp.set(pause + 1);
    }
    if (pause === 0 && this.#tries === 1) this.#tryAgain();
    else this.#pace.set(pause);
  }

  #tryAgain() {
    if (this.#attempt || !this.detached) return;
    // The browser may be wrong (it does not know of loopback): believed for a while only.
    if (this.#plan.runtime.navigator?.onLine === false && !this.#waited && !this.#over) {
      this.#waited = true;
      return this.#pace.set(MS.offline);
    }
    this.#resume();
  }

  /** One attempt at a resume. It runs beside a live connection for a move, or where that one is suspected. */
  #resume() {
    this.#pace.clear();
    this.#waited = this.#told = false;
    this.#begun = this.#plan.runtime.now();
    try {
      this.#attempt = this.#dial(Kind.RESUME);
    } catch {
      return this.#attemptFailed(null);
    }
    this.#attempt.owing = this.#owing;
    this.#owing = false;
    this.#patience.set(this.#connectLimit());
  }

  /**
   * How long an attempt may take to its 101. On a network that swallows everything, what
   * counts is how soon after its return the next SYN goes out. A system sends one at 0, 1, 3
   * and 7 s of an attempt (or 0, 3 and 9; newer Linux each second at first), and the next
   * attempt begins with another after 4 to 5 s: no moment is further than 3 s from the next.
   * On a slow link a handshake takes up to 4 round trips (TCP, TLS 1.2, HTTP). An attempt that
   * would come about must not be cut, so the limit grows with the round trip, and leaves as
   * much as the slowest handshake took to one whose first two SYNs were lost. As long as it is
   * below 11 s, the next SYN is at most 4 s away.
   */
  #connectLimit() {
    return Math.min(Math.max(MS.connect, 4 * this.#liveness.rtt, this.#slowest + MS.lostSyns), MS.connectMax);
  }

  /** @param {Connection | null} conn @param {number} [after] */
  #attemptFailed(conn, after = 0) {
    this.#attempt = null;
    this.#patience.clear();
    if (this.#state === State.CONNECTING) {
      if (conn && !conn.opened && this.#mayFallBack()) return this.#fallBack();
      return this.#finish(NO_WAY_BACK);
    }
    this.#ack(); // what was held back for its sake
    if (this.#state === State.ATTACHED) return this.#moveAgain(after);
    if (this.#live && this.#spoke) return this.#falseAlarm();
    if (this.#over && !after) return this.#finish(NO_WAY_BACK);
    return this.#failed(after);
  }

  /** An attempt takes too long. @param {boolean} late */
  #onPatience(late) {
    const conn = this.#attempt;
    if (!conn) return;
    if (this.#state !== State.CONNECTING) {
      if (late && this.#state === State.DETACHED) return; // waking has begun another
      this.#abandon(conn);
      return this.#attemptFailed(conn);
    }
    if (late) this.#patience.set(MS.firstHello); // its hello may have come while the page slept
    else this.#noHello(conn);
  }

  /** The time is over. An attempt that was answered, or that is owed, is waited for. */
  #onGiveUp() {
    const conn = this.#attempt;
    if (this.#farewell) return this.#finish(NO_WAY_BACK);
    if (conn && !conn.opened && !conn.owing) this.#abandon(conn);
    this.#over = true;
    if (this.#attempt) return;
    if (this.#owing) return this.#tryAgain();
    this.#finish(NO_WAY_BACK);
  }

  /** @param {number} within */
  #onMove(within) {
    const { now, random } = this.#plan.runtime;
    this.#moveBy = now() + within;
    this.#moveAt.set(random() * within);
  }

  #move() {
    const conn = this.#live;
    if (conn && !this.#attempt && !conn.bye && !conn.verdict) this.#resume();
  }

  /** @param {number} after what the gateway asked for, or 0 */
  #moveAgain(after) {
    const pause = Math.max(1000, after);
    const left = this.#moveBy - this.#plan.runtime.now();
    if (left > pause) this.#moveAt.set(pause + this.#plan.runtime.random() * (left - pause));
  }

  // ---- ends

  /**
   * `end` or `close` on a live connection: the Close frame follows.
   * @param {Connection} conn
   * @param {Verdict} verdict
   */
  #onVerdict(conn, verdict) {
    conn.verdict = verdict;
    if (verdict.retry) this.#onCloseBy();
    else this.#closeBy.set(MS.closing);
  }

  /** @param {Connection} conn @param {Verdict} verdict */
  #onCloseVerb(conn, verdict) {
    const own = { ...verdict, retry: verdict.retry || this.#isMine(conn, verdict) };
    return conn.hello ? this.#onVerdict(conn, own) : this.#onRefusal(conn, own);
  }

  /** The Close frame did not come, or need not be waited for. */
  #onCloseBy() {
    const conn = this.#live;
    if (!conn) return;
    conn.close();
    if (conn.verdict?.retry === false) return this.#finishBy(conn.verdict);
    this.#lose('closed', { after: conn.verdict?.after });
  }

  /**
   * `close` in answer to an attempt. With retry false it speaks of the token and the count
   * that were stated, and only of them.
   * @param {Connection} conn
   * @param {Verdict} verdict
   */
  #onRefusal(conn, verdict) {
    const stale = conn.token !== this.#said.token || conn.stated !== this.#received;
    conn.close();
    if (this.#state === State.CONNECTING) return verdict.retry ? this.#finish(NO_WAY_BACK) : this.#finishBy(verdict);
    if (verdict.retry || stale) return this.#attemptFailed(conn, verdict.after);
    if (!this.#live) return this.#finishBy(verdict);
    this.#moveBy = 0; // the older connection goes on
    return this.#attemptFailed(conn);
  }

  /**
   * A 4409 that an attempt of our own may have caused: one that is under way, or one that
   * ended in the dark since the hello before the newest (protocol section 6). That goes for
   * a connection that waits for its hello as well: nothing says that what we answered to
   * the newest hello, and what spends the older generations, has come through.
   * @param {Connection} conn
   * @param {Verdict} verdict
   */
  #isMine(conn, { code }) {
    const before = Math.max(this.#hellos - 1, 0);
    return code === 4409 && ((this.#attempt !== null && this.#attempt !== conn) || this.#abandoned >= before);
  }

  /** @param {{ code: number, reason: string }} said */
  #finishBy({ code, reason }) {
    this.#finish({ code, reason, wasClean: true, error: false });
  }

  /** The end, whatever brought it: an application that closed is told its own code. @param {Ending} ending */
  #finish(ending) {
    if (this.#state === State.ENDED) return;
    const own = this.#state === State.PLAIN ? null : this.#farewell;
    const told = own ? { code: own.code, reason: own.reason, wasClean: true, error: false } : ending;
    for (const alarm of this.#timers) alarm.clear();
    this.#watchPage('removeEventListener');
    this.#enter(State.ENDED, `${told.code}`);
    const open = [this.#live, this.#attempt];
    this.#live = this.#attempt = null;
    for (const conn of open) conn?.close();
    this.#out.drop();
    this.#host.closed(told);
  }

  // ---- page life

  /** @param {'addEventListener' | 'removeEventListener'} change */
  #watchPage(change) {
    const { window, document } = this.#plan.runtime;
    for (const type of ['online', 'pageshow', 'pagehide']) window?.[change]?.(type, this.#onPage);
    for (const type of ['visibilitychange', 'freeze', 'resume']) document?.[change]?.(type, this.#onPage);
  }

  /**
   * All that the page's life means to the session. Coming back, in whatever way, is a
   * reason to ask whether the connection still lives and to try again at once.
   * @param {any} event
   */
  #onPage = (event) => {
    const hidden = this.#plan.runtime.document?.visibilityState === 'hidden';
    if (event.type === 'pagehide' && !event.persisted) return this.#leave();
    if (event.type === 'pagehide' || event.type === 'freeze' || (event.type === 'visibilitychange' && hidden)) {
      return this.#ack(); // timers may be late from here on
    }
    if (this.#late() > MS.slept) return this.#wake();
    if (this.#state === State.ATTACHED) return this.#ping();
    if (this.#state !== State.DETACHED || this.#attempt || this.#heldBack()) return undefined;
    return event.type === 'online' ? this.#resume() : this.#tryAgain();
  };

  /** The page is left for good: no ghost is to stay in the game. */
  #leave() {
    if (this.#state !== State.ATTACHED && !this.detached) return;
    this.#farewell ??= { code: 1001, reason: '', bare: false };
    this.#pump();
    if (this.#live && !this.#live.bye) this.#sayBye(this.#live, this.#farewell);
  }
}

// The shape of WebSocket (WebSockets Standard, section 3).

/** @param {string} message */
const syntaxError = (message) => new DOMException(message, 'SyntaxError');

/** @param {unknown} given @param {string | undefined} base @returns {string} the absolute URL, ws: or wss: */
function webSocketURL(given, base) {
  let url;
  try {
    url = new URL(`${given}`, base);
  } catch {
    throw syntaxError(`the URL '${given}' is invalid`);
  }
  if (url.protocol === 'http:') url.protocol = 'ws:';
  if (url.protocol === 'https:') url.protocol = 'wss:';
  if (url.protocol !== 'ws:' && url.protocol !== 'wss:') throw syntaxError(`the URL's scheme must be ws, wss, http or https, not '${url.protocol}'`);
  if (url.href.includes('#')) throw syntaxError(`the URL must have no fragment: '${url.hash}'`);
  return url.href;
}

/** @param {unknown} given @returns {string[]} */
function subprotocols(given) {
  if (given === undefined) return [];
  const iterable = typeof given === 'object' && given !== null && Symbol.iterator in given;
  if (typeof given !== 'string' && !iterable) throw syntaxError('the subprotocols must be a string or a list of strings');
  const names = typeof given === 'string' ? [given] : [.../** @type {Iterable<any>} */ (given)];
  if (!names.every(isToken)) throw syntaxError(`a subprotocol is invalid: ${names.map(String).join(', ')}`);
  if (new Set(names.map((name) => name.toLowerCase())).size < names.length) throw syntaxError(`a subprotocol stands twice: ${names.join(', ')}`);
  return names;
}

/** @param {string} url an absolute URL @returns {string} such as ws://host:8080 */
const originOf = (url) => new URL(url).origin;

/** The origin, as ws: or wss:, of the gateway that served this module as /reseat.js; '' for none. @param {string} module */
function moduleOrigin(module) {
  try {
    const url = new URL(module);
    if (url.pathname !== '/reseat.js' || !/^https?:$/.test(url.protocol)) return '';
    return originOf(webSocketURL(url.origin, undefined));
  } catch {
    return '';
  }
}

/** WebIDL's [Clamp] unsigned short. @param {any} value */
function clampedShort(value) {
  const number = Number(value);
  return Number.isNaN(number) ? 0 : Math.round(Math.min(Math.max(number, 0), 65_535));
}

/** @param {any} given */
const isBytes = (given) => ArrayBuffer.isView(given) || Object.prototype.toString.call(given) === '[object ArrayBuffer]';

/** A copy of an ArrayBuffer, or of what a view shows of one. @param {any} given @returns {ArrayBuffer} */
function bytesOf(given) {
  const { buffer = given, byteOffset = 0, byteLength } = given;
  return byteLength > 0 ? new Uint8Array(buffer, byteOffset, byteLength).slice().buffer : new ArrayBuffer(0);
}

/** A copy of what was given to send(): the caller may change its own at once. @param {any} given */
function outgoing(given) {
  const tag = Object.prototype.toString.call(given);
  if (isBytes(given)) return { data: bytesOf(given), bytes: given.byteLength };
  if ((tag === '[object Blob]' || tag === '[object File]') && typeof given.arrayBuffer === 'function') {
    return { data: /** @type {Promise<ArrayBuffer>} */ (given.arrayBuffer()), bytes: given.size };
  }
  const data = `${given}`;
  return { data, bytes: utf8Length(data) };
}

/** @param {any} given @returns {Keepalive | null} */
function keepaliveOf(given) {
  if (given === undefined || given === null) return null;
  const { receive, answer, every } = Object((Object.hasOwn(KEEPALIVES, given) && KEEPALIVES[given]) || given);
  const bytes = isBytes(receive);
  if ((bytes || typeof receive === 'string') && (answer === undefined || typeof answer === 'string') && every > 0) {
    return { receive: bytes ? bytesOf(receive) : receive, answer, every };
  }
  throw new TypeError(`keepalive must be ${Object.keys(KEEPALIVES).join(', ')} or { receive, answer, every }`);
}

/** What a message event holds. @param {any} data @param {string} binaryType @returns {Incoming} */
function incoming(data, binaryType) {
  if (typeof data === 'string') return data;
  const buffer = ArrayBuffer.isView(data) ? data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength) : data;
  const blob = binaryType === 'blob' && typeof Blob === 'function' && typeof buffer.byteLength === 'number';
  return blob ? new Blob([buffer]) : buffer;
}

/**
 * @typedef {object} ReseatSocketEventMap
 * @property {Event} open
 * @property {MessageEvent} message
 * @property {Event} error
 * @property {CloseEvent} close
 * @property {CustomEvent<DetachDetail> & DetachDetail} detach the connection is lost, or an attempt has failed: attempt number `attempt` comes next
 * @property {CustomEvent<ResumeDetail> & ResumeDetail} resume a new connection has taken over; `replay` messages come again
 * @property {Event} replayed those messages have come
 */

/** @typedef {{ value: any, listener: (event: Event) => void }} Handler */

/**
 * A WebSocket whose session survives its connections. Members, constants, errors and
 * events are those of `WebSocket`; `session`, `detached` and the events `detach`, `resume`
 * and `replayed` are added. Towards a server without Reseat it is an ordinary WebSocket.
 */
export class ReseatSocket extends EventTarget {
  #url;
  #origin;
  /** @type {Session | undefined} */
  #session;
  /** @type {BinaryType} */
  #binaryType = 'blob';
  /** @type {Map<string, Handler>} */
  #handlers = new Map();
  /** @type {(() => Event)[]} */
  #events = [];
  #busy = false;

  /** @param {[url: string | URL, protocols?: string | Iterable<string>, options?: ReseatOptions]} given */
  constructor(...given) {
    if (given.length < 1) throw new TypeError('a URL is missing');
    super();
    const [url, protocols, options] = given;
    const { WebSocket: Given, fallback, token, keepalive, runtime: surroundings, [PLAIN_ONLY]: plain = false } = /** @type {any} */ (Object(options));
    const runtime = runtimeOf(surroundings);
    const Transport = typeof Given === 'function' ? Given : NativeWebSocket ?? platformWebSocket();
    this.#url = webSocketURL(url, runtime.base);
    this.#origin = originOf(this.#url);
    const names = subprotocols(protocols);
    if (token !== undefined && token !== null && !isToken(token)) throw syntaxError('the token is invalid');
    if (!Transport) throw new TypeError('there is no WebSocket here: give one as options.WebSocket');
    const plan = { url: this.#url, protocols: names, token: token ?? '', fallback: fallback !== false, plain, keepalive: keepaliveOf(keepalive), Transport, runtime };
    this.#call(() => (this.#session = new Session(plan, this.#host())));
  }

  /** @returns {0} */
  static get CONNECTING() {
    return ReadyState.CONNECTING;
  }

  /** @returns {1} */
  static get OPEN() {
    return ReadyState.OPEN;
  }

  /** @returns {2} */
  static get CLOSING() {
    return ReadyState.CLOSING;
  }

  /** @returns {3} */
  static get CLOSED() {
    return ReadyState.CLOSED;
  }

  /** @returns {0} */
  get CONNECTING() {
    return ReadyState.CONNECTING;
  }

  /** @returns {1} */
  get OPEN() {
    return ReadyState.OPEN;
  }

  /** @returns {2} */
  get CLOSING() {
    return ReadyState.CLOSING;
  }

  /** @returns {3} */
  get CLOSED() {
    return ReadyState.CLOSED;
  }

  /** The absolute URL. */
  get url() {
    return this.#url;
  }

  /** CONNECTING until the first hello, then OPEN, detached or not. @returns {number} */
  get readyState() {
    return this.#session?.readyState ?? ReadyState.CONNECTING;
  }

  /** Bytes given to send() that no connection was given yet. @returns {number} */
  get bufferedAmount() {
    return this.#session?.bufferedAmount ?? 0;
  }

  /** The subprotocol that the game server chose. @returns {string} */
  get protocol() {
    return this.#session?.protocol ?? '';
  }

  /** @returns {string} */
  get extensions() {
    return this.#session?.extensions ?? '';
  }

  /** The session's id; null before the first hello, and where there is no Reseat. @returns {string | null} */
  get session() {
    return this.#session?.id ?? null;
  }

  /** Whether the session is without a connection at the moment. @returns {boolean} */
  get detached() {
    return this.#session?.detached ?? false;
  }

  /** @returns {BinaryType} */
  get binaryType() {
    return this.#binaryType;
  }

  set binaryType(type) {
    if (type === 'blob' || type === 'arraybuffer') this.#binaryType = type;
  }

  /** @returns {((this: any, event: Event) => any) | null} */
  get onopen() {
    return this.#handler('open');
  }

  set onopen(handler) {
    this.#handle('open', handler);
  }

  /** @returns {((this: any, event: MessageEvent) => any) | null} */
  get onmessage() {
    return this.#handler('message');
  }

  set onmessage(handler) {
    this.#handle('message', handler);
  }

  /** @returns {((this: any, event: Event) => any) | null} */
  get onerror() {
    return this.#handler('error');
  }

  set onerror(handler) {
    this.#handle('error', handler);
  }

  /** @returns {((this: any, event: CloseEvent) => any) | null} */
  get onclose() {
    return this.#handler('close');
  }

  set onclose(handler) {
    this.#handle('close', handler);
  }

  /**
   * Sends a message, exactly once over all connections. While detached it waits.
   * @param {[data: string | ArrayBufferLike | Blob | ArrayBufferView]} given
   * @returns {void}
   */
  send(...given) {
    if (given.length < 1) throw new TypeError('a message is missing');
    const message = this.readyState === ReadyState.CONNECTING ? undefined : outgoing(given[0]);
    if (!message) throw new DOMException('still in CONNECTING state', 'InvalidStateError');
    this.#call(() => this.#session?.send(message.data, message.bytes));
  }

  /**
   * Ends the session, after all that was sent before. While detached it is carried through.
   * @param {number} [code] 1000 or 3000 to 4999
   * @param {string} [reason] at most 123 bytes
   * @returns {void}
   */
  close(code, reason) {
    const number = code === undefined ? undefined : clampedShort(code);
    const text = reason === undefined ? '' : `${reason}`;
    if (number !== undefined && number !== 1000 && (number < 3000 || number > 4999)) {
      throw new DOMException(`the code must be 1000 or from 3000 to 4999, not ${number}`, 'InvalidAccessError');
    }
    if (utf8Length(text) > 123) throw syntaxError('the reason must not be longer than 123 bytes');
    this.#call(() => this.#session?.close(number, text));
  }

  /**
   * @template {keyof ReseatSocketEventMap} K
   * @overload
   * @param {K} type
   * @param {(this: any, event: ReseatSocketEventMap[K]) => any} listener
   * @param {boolean | AddEventListenerOptions} [options]
   * @returns {void}
   */
  /**
   * @overload
   * @param {string} type
   * @param {EventListenerOrEventListenerObject | null} listener
   * @param {boolean | AddEventListenerOptions} [options]
   * @returns {void}
   */
  /** @param {string} type @param {any} listener @param {any} [options] */
  addEventListener(type, listener, options) {
    super.addEventListener(type, listener, options);
  }

  /**
   * @template {keyof ReseatSocketEventMap} K
   * @overload
   * @param {K} type
   * @param {(this: any, event: ReseatSocketEventMap[K]) => any} listener
   * @param {boolean | EventListenerOptions} [options]
   * @returns {void}
   */
  /**
   * @overload
   * @param {string} type
   * @param {EventListenerOrEventListenerObject | null} listener
   * @param {boolean | EventListenerOptions} [options]
   * @returns {void}
   */
  /** @param {string} type @param {any} listener @param {any} [options] */
  removeEventListener(type, listener, options) {
    super.removeEventListener(type, listener, options);
  }

  /** What the session tells, as events. @returns {Host} */
  #host() {
    return {
      opened: () => this.#emit(() => new Event('open')),
      message: (data) => this.#emit(() => new MessageEvent('message', { data: incoming(data, this.#binaryType), origin: this.#origin })),
      notice: (type, detail) => this.#emit(() => new ReseatEvent(type, detail)),
      closed: ({ error, ...ending }) => {
        if (error) this.#emit(() => new Event('error'));
        this.#emit(() => new CloseEventHere('close', ending));
      },
    };
  }

  /** Dispatches an event, in its turn: never within a call or an event of the application's. @param {() => Event} event */
  #emit(event) {
    this.#events.push(event);
    this.#dispatch();
  }

  #dispatch() {
    if (this.#busy) return;
    this.#busy = true;
    try {
      for (let next = this.#events.shift(); next; next = this.#events.shift()) this.dispatchEvent(next());
    } finally {
      this.#busy = false;
    }
  }

  /** Runs a call of the application's; what it brings about is told after it. @param {() => void} run */
  #call(run) {
    const outer = this.#busy;
    this.#busy = true;
    try {
      run();
    } finally {
      this.#busy = outer;
      if (!outer && this.#events.length > 0) queueMicrotask(() => this.#dispatch());
    }
  }

  /** @param {string} type */
  #handler(type) {
    return this.#handlers.get(type)?.value ?? null;
  }

  /**
   * An event handler IDL attribute (HTML, section 8.1.8.1): it keeps the place of its first
   * setting among the listeners until it is set to null.
   * @param {string} type
   * @param {any} value
   */
  #handle(type, value) {
    const handler = this.#handlers.get(type);
    if (value === null || (typeof value !== 'function' && typeof value !== 'object')) {
      if (handler) super.removeEventListener(type, handler.listener);
      this.#handlers.delete(type);
    } else if (handler) {
      handler.value = value;
    } else {
      const added = { value, listener: (/** @type {Event} */ event) => typeof added.value === 'function' && added.value.call(this, event) };
      this.#handlers.set(type, added);
      super.addEventListener(type, added.listener);
    }
  }
}

// As WebIDL has them: constants on both the class and its instances, all members enumerable.
for (const [name, value] of Object.entries(ReadyState)) {
  for (const holder of [ReseatSocket, ReseatSocket.prototype]) {
    Object.defineProperty(holder, name, { value, enumerable: true, writable: false, configurable: false });
  }
}
for (const name of Object.getOwnPropertyNames(ReseatSocket.prototype)) {
  if (name !== 'constructor' && !(name in ReadyState)) Object.defineProperty(ReseatSocket.prototype, name, { enumerable: true });
}
Object.defineProperty(ReseatSocket.prototype, Symbol.toStringTag, { value: 'WebSocket', configurable: true });

export default ReseatSocket;

/**
 * Puts ReseatSocket in the place of `globalThis.WebSocket`, for the URLs that `match`
 * accepts. What is `instanceof WebSocket` retries so, and a ReseatSocket is too. A second
 * call changes nothing.
 *
 * @param {InstallOptions & ReseatOptions} [options]
 * @returns {() => void} puts everything back
 */
export function install({ match, hideOffline = false, ...options } = {}) {
  const here = /** @type {any} */ (globalThis);
  const before = Object.getOwnPropertyDescriptor(here, 'WebSocket');
  if (here.WebSocket?.[INSTALLED]) return here.WebSocket[INSTALLED].uninstall;
  const native = typeof options.WebSocket === 'function' ? options.WebSocket : platformWebSocket();
  if (!native) throw new TypeError('there is no WebSocket here: give one as options.WebSocket');
  const show = hideOffline ? hideEvent(runtimeOf(options.runtime).window, 'offline') : () => {};
  const uninstall = () => {
    if (here.WebSocket?.[INSTALLED]?.uninstall !== uninstall) return;
    show();
    if (before) Object.defineProperty(here, 'WebSocket', before);
    else delete here.WebSocket;
  };
  const value = standIn(native, accepts(match), { ...options, WebSocket: native }, { uninstall, native });
  Object.defineProperty(here, 'WebSocket', { value, writable: true, configurable: true, enumerable: before?.enumerable ?? false });
  return uninstall;
}

/** @param {InstallOptions['match']} match @returns {(url: string) => boolean} */
function accepts(match) {
  if (match === undefined || match === null) return () => true;
  if (typeof match === 'function') return (url) => Boolean(match(url));
  return (url) => url.search(match) >= 0; // whatever the expression's lastIndex
}

/**
 * The constructor that stands in. A URL that is not ours gets a native WebSocket; a class
 * that extends the stand-in gets a ReseatSocket that makes no offer.
 *
 * @param {any} native
 * @param {(url: string) => boolean} mine
 * @param {ReseatOptions} defaults
 * @param {{ uninstall: () => void, native: any }} mark
 */
function standIn(native, mine, defaults, mark) {
  /** @type {any} */
  const proxy = new Proxy(ReseatSocket, {
    construct(target, args, newTarget) {
      if (args.length === 0) throw new TypeError('a URL is missing');
      const [url, protocols, own] = args;
      const href = webSocketURL(url, runtimeOf(defaults.runtime).base);
      const wanted = mine(href);
      if (!wanted && newTarget === proxy) return protocols === undefined ? new native(url) : new native(url, protocols);
      const options = { ...defaults, ...Object(own), ...(wanted ? {} : { [PLAIN_ONLY]: true }) };
      return Reflect.construct(target, [url, protocols, options], newTarget === proxy ? target : newTarget);
    },
    get(target, key) {
      if (key === INSTALLED) return mark;
      if (key === Symbol.hasInstance) return (/** @type {any} */ value) => value instanceof target || value instanceof native;
      return Reflect.get(target, key);
    },
  });
  return proxy;
}

/** Keeps an event from the listeners that are added from now on. @param {any} target @param {string} type */
function hideEvent(target, type) {
  /** @param {Event} event */
  const stop = (event) => event.stopImmediatePropagation();
  target?.addEventListener?.(type, stop);
  return () => target?.removeEventListener?.(type, stop);
}
