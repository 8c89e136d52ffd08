// A clock, a page and a transport that do nothing by themselves.

import assert from 'node:assert/strict';
import { NAMES } from '../client/state.js';
import { ReseatSocket } from '../reseat.js';

export const DLE = '\x10';
export const TOKEN = 'h.p.s';

/** What a handshake offers behind the application's subprotocols. @param {string[]} own */
export const offerOf = (own, settled = '0.0') => [
  ...['reseat.v1', 'reseat.parts', 'reseat.skip', 'reseat.partial.0'],
  ...own,
  `reseat.settled.${settled}`,
];

/** The first one's, and that of a resume. */
export const OFFER = offerOf(['reseat.refusals']);
export const resumeOffer = (token = TOKEN, received = 0, settled = '0.0') =>
  offerOf([`reseat.token.${token}`, `reseat.received.${received}`], settled);

export const FIREFOX = 'Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0';

/** Lets everything run that waits for promises only. */
export const settle = async () => {
  for (let i = 0; i < 5; i++) await Promise.resolve();
};

/** Waits for what takes real time: the engine reads a Blob. @param {() => unknown} so */
export async function until(so) {
  for (const end = Date.now() + 30_000; !so();) {
    assert.ok(Date.now() < end, `not within 30 s: ${so}`);
    await new Promise((done) => setTimeout(done, 1));
  }
}

/** Timers and two clocks that move by `advance` alone. Times are milliseconds. */
export class FakeClock {
  mono = 0;
  away = 1_700_000_000_000; // wall clock minus monotonic clock
  #timers = new Map();
  #ids = 0;

  setTimeout = (run, ms) => {
    this.#timers.set(++this.#ids, { id: this.#ids, run, due: this.mono + ms });
    return this.#ids;
  };

  clearTimeout = (id) => this.#timers.delete(id);

  get pending() {
    return this.#timers.size;
  }

  /** Runs what falls due in the next `ms`, each at its time. */
  async advance(ms) {
    const end = this.mono + ms;
    for (;;) {
      await settle();
      let next;
      for (const timer of this.#timers.values()) if (timer.due <= end && !(next?.due <= timer.due)) next = timer;
      if (!next) break;
      this.#timers.delete(next.id);
      this.mono = Math.max(this.mono, next.due);
      next.run();
    }
    this.mono = end;
    await settle();
  }

  /** The page is frozen, or the machine sleeps (then only the wall clock goes on). No timer runs. */
  freeze(ms, { machine = false } = {}) {
    if (machine) this.away += ms;
    else this.mono += ms;
  }
}

/** What a page has of window, document and navigator. */
export function fakePage() {
  const document = Object.assign(new EventTarget(), { visibilityState: 'visible' });
  const window = new EventTarget();
  return {
    window,
    document,
    navigator: { onLine: true },
    show: (state) => {
      document.visibilityState = state;
      document.dispatchEvent(new Event('visibilitychange'));
    },
    fire: (type, members = {}) => window.dispatchEvent(Object.assign(new Event(type), members)),
  };
}

/** A transport that the test plays: `scriptedTransport()` makes a class with its own list of sockets. */
export function scriptedTransport() {
  return class Scripted extends EventTarget {
    static sockets = [];
    readyState = 0;
    protocol = '';
    extensions = '';
    bufferedAmount = 0;
    binaryType = 'blob';
    sent = [];
    closed = null; // the arguments of close()

    constructor(url, protocols = []) {
      super();
      if (Scripted.refuse) throw new DOMException('refused', 'SecurityError');
      this.url = url;
      this.protocols = protocols;
      Scripted.sockets.push(this);
    }

    send(data) {
      this.sent.push(data);
    }

    close(...args) {
      this.closed ??= args;
      if (this.readyState < 2) this.readyState = 2;
    }

    // What the test does.

    open(protocol = 'reseat.v1') {
      this.protocol = protocol;
      this.readyState = 1;
      this.dispatchEvent(new Event('open'));
    }

    /** A data message as it stands on the wire, or a control message. */
    receive(data) {
      this.dispatchEvent(new MessageEvent('message', { data }));
    }

    control(verb, argument) {
      const rest =
        argument === undefined ? '' : ` ${typeof argument === 'object' ? JSON.stringify(argument) : argument}`;
      this.receive(`${DLE}${verb}${rest}`);
    }

    hello(members = {}) {
      this.control('hello', hello(members));
    }

    /** Open, then hello. */
    attach(members = {}) {
      this.open();
      this.hello(members);
    }

    /** The session goes on. */
    resume(members = {}) {
      this.attach({ resumed: true, ...members });
    }

    /** A close message, on a connection that may have just opened. */
    verdict(code, reason = '', more = {}) {
      if (this.readyState === 0) this.open();
      this.control('close', { code, reason, retry: false, ...more });
    }

    end(code, reason = '', wasClean = true) {
      this.readyState = 3;
      this.dispatchEvent(Object.assign(new Event('close'), { code, reason, wasClean }));
    }

    /** The connection breaks, or the handshake fails. */
    drop() {
      this.dispatchEvent(new Event('error'));
      this.end(1006, '', false);
    }

    // What the test asks.

    /** Everything sent since the last look, control messages with `^` for DLE. */
    take() {
      return this.sent.splice(0).map((data) => (typeof data === 'string' ? data.replaceAll(DLE, '^') : data));
    }

    /** The data messages sent since the last look, binary ones as text. */
    takeData() {
      const data = this.take().filter((sent) => typeof sent !== 'string' || !/^\^[a-z]/.test(sent));
      return data.map((sent) => (typeof sent === 'string' ? sent : Buffer.from(sent).toString()));
    }

    /** The control messages with that verb. @param {string} verb */
    takeControls(verb) {
      return this.take().filter((data) => typeof data === 'string' && data.startsWith(`^${verb}`));
    }

    /** How many pings were sent since the last look; it answers them. */
    pong() {
      const sent = this.takeControls('ping ');
      for (const ping of sent) this.control('pong', ping.slice('^ping '.length));
      return sent.length;
    }

    get stated() {
      const find = (prefix) => this.protocols.find((name) => name.startsWith(prefix))?.slice(prefix.length);
      return { token: find('reseat.token.'), received: find('reseat.received.') };
    }

    /** How much of the next message it says that it has. */
    get held() {
      return this.protocols.find((name) => name.startsWith('reseat.partial.'))?.slice('reseat.partial.'.length);
    }

    /** What it says of the application's messages: the newest that is held, the newest that was given to a connection. */
    get settled() {
      const offered = this.protocols.filter((name) => name.startsWith('reseat.settled.'));
      return offered.length === 1 ? offered[0].split('.').slice(2).map(Number) : offered;
    }
  };
}

/** A whole hello. */
export const hello = (members = {}) => ({
  session: 's1',
  token: TOKEN,
  resumed: false,
  received: 0,
  lost: 0,
  replay: 0,
  grace_ms: 30_000,
  heartbeat_ms: 15_000,
  protocol: '',
  limits: { message_bytes: 1 << 20, unacked_messages: 1024, unacked_bytes: 1 << 20 },
  ...members,
});

/** A seeded generator of numbers in [0, 1) (mulberry32). */
export function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** What the detail of an event says: its members that have a value. */
export const said = (detail) => Object.fromEntries(Object.entries(detail).filter(([, value]) => value !== undefined));

/** The events of a socket as they came, in short. */
export function record(socket) {
  const log = [];
  socket.addEventListener('open', () => log.push('open'));
  socket.addEventListener('message', (event) => log.push(event.data));
  socket.addEventListener('error', () => log.push('error'));
  socket.addEventListener('close', (event) =>
    log.push(`close ${event.code} ${event.reason}${event.wasClean ? '' : ' unclean'}`),
  );
  socket.addEventListener('detach', (event) => log.push(`detach ${event.attempt}`));
  socket.addEventListener('resume', (event) => log.push(`resume ${event.replay} ${event.lost}`));
  socket.addEventListener('replayed', () => log.push('replayed'));
  socket.addEventListener('skip', (event) => log.push(`skip ${event.skipped}`));
  return log;
}

/** What a client has around it: that clock, that page. */
export const runtimeOf = (clock, page, more = {}) => ({
  setTimeout: clock.setTimeout,
  clearTimeout: clock.clearTimeout,
  now: () => clock.mono,
  wall: () => clock.mono + clock.away,
  random: () => 0.5,
  window: page.window,
  document: page.document,
  navigator: page.navigator,
  base: undefined,
  gateways: new Set(),
  ...more,
});

/**
 * A socket in a world of its own.
 * @returns {any} { socket, log, clock, page, sockets, last(), states, take(), connectsAfter(), pingsAfter() }
 */
export function world({ url = 'ws://game.test/match/7', protocols, options = {}, runtime = {}, random } = {}) {
  const clock = new FakeClock();
  const page = fakePage();
  const Transport = scriptedTransport();
  const states = [];
  const surroundings = runtimeOf(clock, page, {
    module: 'file:///reseat.js',
    trace: (state) => states.push(NAMES[state]),
    ...(random && { random }),
    ...runtime,
  });
  const { sockets } = Transport;
  const socket = new ReseatSocket(url, protocols, { WebSocket: Transport, runtime: surroundings, ...options });
  const log = record(socket);
  const last = () => sockets.at(-1);
  return {
    socket,
    log,
    clock,
    page,
    sockets,
    states,
    Transport,
    surroundings,
    last,
    take: () => log.splice(0),
    /** The next connection begins after exactly so long. */
    async connectsAfter(ms, why = '') {
      const { length } = sockets;
      await clock.advance(ms - 1);
      assert.equal(sockets.length, length, `${why}: connections 1 ms before ${ms}`);
      await clock.advance(1);
      assert.equal(sockets.length, length + 1, `${why}: connections after ${ms} ms`);
    },
    /** The next ping comes after exactly so long; returns its argument. */
    async pingsAfter(ms, why = '') {
      const pings = () => last().sent.filter((data) => /^.ping /.test(data));
      await clock.advance(ms - 1);
      assert.deepEqual(pings(), [], `${why}: pings 1 ms before ${ms}`);
      await clock.advance(1);
      assert.equal(pings().length, 1, `${why}: pings after ${ms} ms`);
      return last().takeControls('ping ')[0].slice('^ping '.length);
    },
  };
}

/** A world whose session has had its first hello, with nothing left to look at. */
export function attached(setup = {}) {
  const { first, ...rest } = setup;
  const w = world(rest);
  w.last().attach(first);
  w.last().take();
  w.take();
  return w;
}
