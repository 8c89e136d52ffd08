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
  firstHello: 5_000, // reseat.v1 section 2: none by then, and the server does not know us
  resumeHello: 16_000, // reseat.v1 section 2: at least 15 s after the 101
  connect: 10_000, // to have the 101 of a resume
  hurry: 4_000, // the same, once the page or the network has come back
  ack: 800, // reseat.v1 section 5: 1 s after the oldest unacked message, less the way
  probe: 2_000, // for the answer to a ping after the page or the network has come back, since the last message
  jitter: 5_000, // the longest pause between two attempts
  breath: 50, // the shortest pause after one that failed
  offline: 10_000, // pause before an attempt while the browser says that it is offline
  closing: 2_000, // between `end` or `close` and the Close frame
  farewell: 10_000, // reseat.v1 section 5: what the gateway gives the upstream after `bye`
  settled: 5_000, // a connection that held this long was a good one
  slept: 5_000, // a timer later than this: page or machine slept
});

/** reseat.v1 section 5: how much may come before an ack is due. */
const ACK_AFTER = Object.freeze({ messages: 32, bytes: 64 * 1024 });

/**
 * Where a session stands. `detached` has no connection; an attempt may be under way.
 *
 *     connecting -> attached   the first hello
 *     connecting -> plain      the server does not know reseat.v1
 *     attached   -> detached   drop, silence, Close without verdict
 *     detached   -> attached   the hello of a resume
 *     attached   -> attached   the hello of a move
 *     any        -> ended
 */
const State = Object.freeze({
  CONNECTING: 'connecting',
  ATTACHED: 'attached',
  DETACHED: 'detached',
  PLAIN: 'plain',
  ENDED: 'ended',
});

/** Heartbeats by name. Engine.IO, protocol revision 4: ping and pong packets. @type {Readonly<Record<string, Keepalive>>} */
const KEEPALIVES = Object.freeze({ 'engine.io': { receive: '2', answer: '3', every: 5_000 } });

const ReadyState = Object.freeze({ CONNECTING: 0, OPEN: 1, CLOSING: 2, CLOSED: 3 });

/** What a connection was opened for. */
const Kind = Object.freeze({ FIRST: 'first', RESUME: 'resume', PLAIN: 'plain' });

/**
 * @typedef {object} ReseatOptions
 * @property {any} [WebSocket] the transport's constructor; by default `globalThis.WebSocket` as it was at import
 * @property {boolean} [fallback] false: never open a connection without the offer of `reseat.v1`
 * @property {'engine.io' | Keepalive} [keepalive] a heartbeat of the game server's own that stands in for it while detached
 * @property {string} [token] of a session that was made ahead (`POST /sessions`): the first connection resumes it
 * @property {Partial<ReseatRuntime>} [runtime] the surroundings, for tests
 */

/**
 * A heartbeat of the game server's own, for a client library that takes its connection for
 * dead without it. While detached, and after a sleep, the library is given one every so
 * often, and its answer goes nowhere: the gateway answers the server's (`--keepalive-reply`).
 *
 * @typedef {object} Keepalive
 * @property {string} receive the text message that the library waits for
 * @property {string} answer what it answers
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

/** @typedef {{ attempt: number, since: number }} DetachDetail `since` in milliseconds since 1970 */
/** @typedef {{ replay: number, lost: number, ms: number }} ResumeDetail `ms` since the drop */
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
  const { session = '', token, received = 0, lost = 0, replay = 0, grace_ms: grace = 30_000, heartbeat_ms: heartbeat = 15_000, protocol = '', limits } = readObject(text);
  want(isToken(token), 'a token');
  want([received, lost, replay].every(isCount) && [grace, heartbeat].every(isSpan), 'counts and time spans');
  const { unacked_messages: messages, unacked_bytes: bytes } = limits ?? {};
  return {
    session: String(session),
    token: String(token),
    received,
    lost,
    replay,
    grace,
    heartbeat,
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

/** The verbs of reseat.v1 section 5 that a gateway may use, each with how its argument is read. */
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

/** Text that begins with DLE gets one more in front (reseat.v1 section 3). @template {string | ArrayBuffer} T @param {T} data */
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
  /** @type {any} */
  #timer;
  #mono = Infinity;
  #wall = Infinity;

  /** @param {ReseatRuntime} runtime @param {(late: boolean) => void} ring */
  constructor(runtime, ring) {
    this.#runtime = runtime;
    this.#ring = ring;
  }

  get armed() {
    return this.#mono !== Infinity;
  }

  /** Milliseconds since it was due: negative before that, -Infinity when it is not set. */
  get late() {
    return this.armed ? Math.max(this.#runtime.now() - this.#mono, this.#runtime.wall() - this.#wall) : -Infinity;
  }

  /** @param {number} ms */
  set(ms) {
    this.clear();
    const wait = Math.min(ms, 2 ** 31 - 1);
    this.#mono = this.#runtime.now() + wait;
    this.#wall = this.#runtime.wall() + wait;
    this.#timer = this.#runtime.setTimeout(() => {
      const late = this.late > MS.slept;
      this.clear();
      this.#ring(late);
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
   * @type {Pick<ReturnType<typeof readHello>, 'session' | 'token' | 'grace' | 'heartbeat' | 'window'>}
   */
  #said;
  #protocol = '';

  // Counts: `received` downward, the outbox upward.
  #received = 0;
  #out = new Outbox();
  #refused = 0; // bytes given to send() after the end

  // The way back.
  #pacer;
  #dropped = 0; // when, by the clock that is never set
  #since = 0; // the same, by the wall
  #tries = 0;
  #owing = false; // an attempt must be made even when the time is over
  #over = false; // the time is over: the attempt under way is the last
  #told = false; // the gateway said when to come back
  #waited = false; // the pause of an offline browser has been kept
  #silences = 0; // connections in a row that ended in silence
  #pings = 0; // ever sent
  #standIns = 0; // heartbeats that stood in for the game's and were not answered yet
  #moveBy = 0;

  /** @type {Farewell | null} */
  #farewell = null;

  #alarms;
  #patience; // an attempt has had its time
  #pace; // the next attempt
  #giveUp; // the way back is closed
  #watch; // nothing was heard
  #probe; // no answer to the newest ping
  #ackBy; // an ack is due
  #closeBy; // no Close frame came
  #moveAt; // the moment of a move
  #beatAt; // a stand-in for the game's own heartbeat

  /** @param {Plan} plan @param {Host} host */
  constructor(plan, host) {
    /** @param {(this: Session, late: boolean) => void} ring */
    const alarm = (ring) => new Alarm(plan.runtime, (late) => this.#onRing(late, ring));
    this.#plan = plan;
    this.#host = host;
    this.#said = { session: '', token: plan.token, grace: 0, heartbeat: 0, window: { messages: Infinity, bytes: Infinity } };
    this.#pacer = new Pacer(plan.runtime.random);
    this.#alarms = [
      (this.#patience = alarm(this.#onPatience)),
      (this.#pace = alarm(this.#tryAgain)),
      (this.#giveUp = alarm(this.#onGiveUp)),
      (this.#watch = alarm(this.#onSilence)),
      (this.#probe = alarm(this.#onProbe)),
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
    return this.#state === State.DETACHED;
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

  /** reseat.v1 section 2: the application's subprotocols first. */
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
    this.#patience.set(this.#said.token ? MS.resumeHello : MS.firstHello);
  }

  /** @param {Connection} conn @param {any} data */
  #onMessage(conn, data) {
    if (this.#state === State.PLAIN) return this.#host.message(data);
    const slept = this.#slept();
    if (conn === this.#live) {
      if (this.#probe.armed) this.#probe.set(MS.probe); // the answer is behind it, if any comes
      this.#watch.set(this.#silenceLimit());
    }
    if (conn.verdict) return;
    if (typeof data !== 'string' || !data.startsWith(DLE)) this.#onData(conn, data);
    else if (data.startsWith(DLE, 1)) this.#onData(conn, data.slice(1));
    else this.#onControl(conn, data.slice(1));
    if (slept) this.#wake();
  }

  /** @param {Connection} conn @param {any} data */
  #onData(conn, data) {
    if (!conn.hello) return this.#noHello(conn);
    const number = ++conn.last;
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
    switch (verb) {
      case 'hello': return this.#onHello(conn, argument);
      case 'ack': return this.#onAck(conn, argument);
      case 'pong': return this.#onPong(conn, argument);
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
    const ms = this.detached ? this.#plan.runtime.now() - this.#dropped : 0;
    this.#retire(this.#live); // reseat.v1 section 8: nothing more is taken from it
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
    this.#watch.set(this.#silenceLimit());
    this.#ack();
    this.#out.rewind(hello.received);
    this.#pump();
    if (first) return this.#welcome(hello.protocol);
    this.#host.notice('resume', { replay: hello.replay, lost: hello.lost, ms });
    if (hello.replay === 0) this.#host.notice('replayed', {});
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
    this.#silences = 0;
    for (const alarm of [this.#watch, this.#probe, this.#ackBy, this.#closeBy]) alarm.clear();
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
    }
    if (this.#farewell && this.#out.drained) this.#sayBye(conn, this.#farewell);
  }

  /** @param {Connection} conn @param {Farewell} farewell */
  #sayBye(conn, { code, reason, bare }) {
    conn.bye = true;
    if (this.#state === State.PLAIN) return bare ? conn.close() : conn.close(code, reason);
    conn.say('bye', ` ${JSON.stringify({ code, reason })}`);
    this.#closeBy.set(MS.farewell + 2 * this.#said.heartbeat);
  }

  /** @param {Connection} conn @param {number} n */
  #onAck(conn, n) {
    if (!this.#out.ack(n)) return this.#broken(conn);
    conn.useful = true;
    this.#pump();
  }

  /** A Blob could not be read: its place can be filled by nothing, so the session ends. */
  #unreadable() {
    if (this.#state === State.ENDED) return;
    if (this.#live && this.#state === State.ATTACHED) this.#sayBye(this.#live, { code: 1001, reason: 'unreadable Blob', bare: false });
    this.#farewell = null;
    this.#finish(NO_WAY_BACK);
  }

  // ---- downward acks

  /**
   * Acks what came, if that is news. While a resume is under way that stated N, an older
   * connection acks nothing beyond it (reseat.v1 section 5).
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

  /** reseat.v1 section 5: twice as long again for each connection in a row that ended so. */
  #silenceLimit() {
    return this.#said.heartbeat > 0 ? 2 * this.#said.heartbeat * 2 ** this.#silences : Infinity;
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

  /** Nothing was heard for too long. @param {boolean} [late] the page slept, which says nothing of the connection */
  #onSilence(late) {
    this.#live?.close();
    this.#lose('silence', { silent: !late });
  }

  /**
   * Asks for an answer, soon. Only the answer to this very ping will do: whatever else comes
   * now may have waited on this side since before the page slept.
   */
  #ping() {
    if (!this.#live?.hello || this.#probe.armed) return;
    this.#live.say('ping', ` there?${++this.#pings}`);
    this.#probe.set(MS.probe);
  }

  /** @param {Connection} conn @param {string} argument with the space before it */
  #onPong(conn, argument) {
    if (conn === this.#live && argument === ` there?${this.#pings}`) this.#probe.clear();
  }

  /** @param {boolean} late */
  #onProbe(late) {
    if (late) return; // what slept through the answer has asked again
    this.#live?.close();
    this.#lose('no answer');
  }

  /** Keeps a library's own watchdog quiet, while only the gateway knows the game server. @param {boolean} late */
  #beat(late) {
    const { keepalive } = this.#plan;
    if (!keepalive) return;
    this.#beatAt.set(keepalive.every);
    if (this.readyState !== ReadyState.OPEN || (this.#state === State.ATTACHED && !late)) return;
    this.#standIns = 1; // an answer goes to the newest
    this.#host.message(keepalive.receive);
  }

  #slept() {
    return this.#alarms.some((alarm) => alarm.late > MS.slept);
  }

  /** Page or machine slept: what is known of the network is old. */
  #wake() {
    const overdue = this.#watch.late > 0;
    for (const alarm of this.#alarms) alarm.forgive();
    if (this.#state === State.ATTACHED) {
      if (overdue) return this.#onSilence(true);
      this.#probe.clear(); // an answer may have been slept through
      this.#ping();
    } else if (this.#state === State.DETACHED) {
      if (this.#attempt) this.#abandon(this.#attempt);
      this.#owing = true;
      this.#tryAgain();
    }
  }

  /** Whether the gateway named a time to come back that is still to come. */
  #heldBack() {
    return this.#told && this.#pace.late < 0 && this.#pace.armed;
  }

  // ---- the way back

  /** The live connection is lost. @param {string} why */
  #lose(why, { silent = false, after = 0 } = {}) {
    const conn = this.#live;
    if (!conn) return;
    const { now, wall } = this.#plan.runtime;
    this.#live = null;
    for (const alarm of [this.#watch, this.#probe, this.#ackBy, this.#closeBy, this.#moveAt]) alarm.clear();
    this.#silences = silent ? this.#silences + 1 : 0;
    this.#pacer.lost(conn.useful || (why !== 'broken' && now() - conn.since >= MS.settled));
    this.#dropped = now();
    this.#since = wall();
    this.#tries = 0;
    this.#owing = true;
    this.#enter(State.DETACHED, why);
    this.#giveUp.set(this.#farewell ? this.#said.grace : this.#said.grace + 2 * this.#said.heartbeat);
    this.#comeBack(after);
  }

  /** Tells the application, and sees to the next attempt. @param {number} after what the gateway asked for, or 0 */
  #comeBack(after) {
    this.#host.notice('detach', { attempt: ++this.#tries, since: this.#since });
    if (this.#attempt || this.#state !== State.DETACHED) return;
    const pause = Math.max(after, this.#pacer.next());
    this.#told = after > 0;
    if (this.#told) {
      this.#owing = true;
      this.#over = false;
      if (-this.#giveUp.late < pause || !this.#giveUp.armed) this.#giveUp.set(pause + 1);
    }
    if (pause === 0 && this.#tries === 1) this.#tryAgain();
    else this.#pace.set(pause);
  }

  #tryAgain() {
    if (this.#attempt || this.#state !== State.DETACHED) return;
    // The browser may be wrong (it does not know of loopback): believed for a while only.
    if (this.#plan.runtime.navigator?.onLine === false && !this.#waited && !this.#over) {
      this.#waited = true;
      return this.#pace.set(MS.offline);
    }
    this.#resume();
  }

  /** One attempt at a resume. It runs beside a live connection only for a move. */
  #resume() {
    this.#pace.clear();
    this.#waited = this.#told = false;
    try {
      this.#attempt = this.#dial(Kind.RESUME);
    } catch {
      return this.#attemptFailed(null);
    }
    this.#attempt.owing = this.#owing;
    this.#owing = false;
    this.#patience.set(MS.connect);
  }

  /** @param {Connection | null} conn @param {number} [after] */
  #attemptFailed(conn, after = 0) {
    this.#attempt = null;
    this.#patience.clear();
    if (this.#state === State.CONNECTING) {
      if (conn && !conn.opened && this.#mayFallBack()) return this.#fallBack();
      return this.#finish(NO_WAY_BACK);
    }
    if (this.#live) {
      this.#ack(); // what was held back for its sake
      return this.#moveAgain(after);
    }
    if (this.#over && !after) return this.#finish(NO_WAY_BACK);
    this.#comeBack(after);
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
   * ended in the dark since the hello before the newest (reseat.v1 section 6). That goes for
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
    for (const alarm of this.#alarms) alarm.clear();
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
    if (this.#slept()) return this.#wake();
    if (this.#state === State.ATTACHED) return this.#ping();
    if (this.#state !== State.DETACHED || this.#heldBack()) return undefined;
    if (!this.#attempt) return event.type === 'online' ? this.#resume() : this.#tryAgain();
    if (!this.#attempt.opened && -this.#patience.late > MS.hurry) this.#patience.set(MS.hurry);
    return undefined;
  };

  /** The page is left for good: no ghost is to stay in the game. */
  #leave() {
    if (this.#state !== State.ATTACHED && this.#state !== State.DETACHED) return;
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

/** A copy of what was given to send(): the caller may change its own at once. @param {any} given */
function outgoing(given) {
  const tag = Object.prototype.toString.call(given);
  if (ArrayBuffer.isView(given) || tag === '[object ArrayBuffer]') {
    const { buffer = given, byteOffset = 0, byteLength } = /** @type {any} */ (given);
    const data = byteLength > 0 ? new Uint8Array(buffer, byteOffset, byteLength).slice().buffer : new ArrayBuffer(0);
    return { data, bytes: byteLength };
  }
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
  if (typeof receive === 'string' && typeof answer === 'string' && every > 0) return { receive, answer, every };
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
 * accepts. What is `instanceof WebSocket` stays so, and a ReseatSocket is too. A second
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
