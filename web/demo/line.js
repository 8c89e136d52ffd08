// @ts-check
// The line between this page and the gateway: an ordinary WebSocket, with delay
// added and an airplane mode. Both players' sockets run over it.

/** @typedef {(socket: LineSocket) => void} Watch */

/** How long a browser takes to notice that there is no network, in ms. */
const REFUSED_MS = 30;

/** If the page closes a connection that had no answer for this long, the node does not answer. In ms. */
const UNANSWERED_MS = 3000;

/**
 * A Line makes sockets. It delays each message, both ways and in order. In airplane mode every
 * connection is lost at once, as when a browser loses its network, and none can be opened. When
 * the page is left, delayed messages to the gateway are sent at once, since timers end.
 *
 * In a cluster it also acts as a load balancer: it sends connections to another node than the one
 * of their URL, and away from one that does not answer.
 *
 * Events: `change`, and `moved` when a node has not answered.
 */
export class Line extends EventTarget {
  /** The delay of each way, and its max jitter, in ms. */
  delay = 0;
  jitter = 0;
  /** The URL of the node that connections go to; null for that of their own URL. @type {string | null} */
  through = null;
  /** The nodes that there are, by their URLs. @type {string[]} */
  others = [];
  /** A class to be used as WebSocket is. */
  WebSocket;
  #airplane = false;
  /** @type {Set<LineSocket>} */
  #open = new Set();

  /** @param {{Native?: any, random?: () => number, page?: EventTarget}} [own] for tests */
  constructor({ Native = globalThis.WebSocket, random = Math.random, page = globalThis.window } = {}) {
    super();
    const line = this;
    let leaving = false;
    page?.addEventListener('pagehide', () => {
      leaving = true;
      for (const socket of this.#open) socket.flush();
    });
    page?.addEventListener('pageshow', () => (leaving = false));
    this.WebSocket = class extends LineSocket {
      static CONNECTING = 0;
      static OPEN = 1;
      static CLOSING = 2;
      static CLOSED = 3;
      /** @param {string} url @param {string | string[]} [protocols] */
      constructor(url, protocols = []) {
        const to = line.#led(url);
        const native = line.airplane ? null : new Native(to, protocols);
        super(native, () => (leaving ? 0 : line.delay / 2 + random() * line.jitter), url);
        if (native) line.#watch(this, native, url, to);
        line.#open.add(this);
        this.addEventListener('close', () => line.#open.delete(this));
      }
    };
  }

  get airplane() {
    return this.#airplane;
  }

  set airplane(on) {
    if (on === this.#airplane) return;
    this.#airplane = on;
    if (on) for (const socket of this.#open) socket.break();
    this.dispatchEvent(new Event('change'));
  }

  /** Loses every connection at once. */
  cut() {
    for (const socket of [...this.#open]) socket.break();
  }

  /** Where a connection goes. @param {string} url */
  #led(url) {
    if (!this.through) return url;
    const to = new URL(url);
    const { protocol, host } = new URL(this.through);
    to.protocol = protocol.replace('http', 'ws');
    to.host = host;
    return to.href;
  }

  /**
   * Notices that a node does not answer. A connection that the page closed early does not count.
   * @param {LineSocket} socket @param {any} native @param {string} url @param {string} to where it was led
   */
  #watch(socket, native, url, to) {
    const since = performance.now();
    let answered = false;
    native.addEventListener('open', () => (answered = true));
    native.addEventListener('close', () => {
      const soon = socket.givenUp && performance.now() - since < UNANSWERED_MS;
      if (!answered && !soon && this.#led(url) === to) this.#leave(new URL(to).host);
    });
  }

  /** Leads connections to the next node. @param {string} host the one that does not answer */
  #leave(host) {
    const hosts = this.others.map((url) => new URL(url).host);
    const next = this.others[(hosts.indexOf(host) + 1) % hosts.length];
    if (!next || new URL(next).host === host) return;
    this.through = next;
    this.dispatchEvent(new Event('moved'));
  }
}

/** One connection, with the interface of WebSocket. */
class LineSocket extends EventTarget {
  onopen = /** @type {any} */ (null);
  onmessage = /** @type {any} */ (null);
  onerror = /** @type {any} */ (null);
  onclose = /** @type {any} */ (null);
  readyState = 0;
  extensions = '';
  /** Whether the page closed it, or lost its network, before it was open. */
  givenUp = false;
  #native;
  #wait;
  #url;
  /** What is on its way, oldest first: nothing overtakes. @type {Record<'up' | 'down', {at: number, act: () => void}[]>} */
  #queues = { up: [], down: [] };
  #held = 0;

  /** @param {any} native null where there is no network @param {() => number} wait of one message, in ms @param {string} url */
  constructor(native, wait, url) {
    super();
    this.#native = native;
    this.#wait = wait;
    this.#url = url;
    if (!native) {
      setTimeout(() => this.break(), REFUSED_MS);
      return;
    }
    for (const type of ['open', 'message', 'error', 'close'])
      native.addEventListener(type, (/** @type {any} */ event) => this.#later('down', () => this.#tell(event)));
  }

  get url() {
    return this.#native?.url ?? this.#url;
  }

  get protocol() {
    return this.#native?.protocol ?? '';
  }

  get bufferedAmount() {
    return (this.#native?.bufferedAmount ?? 0) + this.#held;
  }

  get binaryType() {
    return this.#native?.binaryType ?? 'blob';
  }

  set binaryType(type) {
    if (this.#native) this.#native.binaryType = type;
  }

  /** @param {any} data */
  send(data) {
    if (this.readyState !== 1) return this.#native?.send(data); // which refuses it as it must
    const size = data.length ?? data.byteLength ?? data.size ?? 0;
    this.#held += size;
    this.#later('up', () => {
      this.#held -= size;
      // It may be closing before its close event has fired; a browser warns about data sent then.
      if (this.readyState < 3 && this.#native.readyState === 1) this.#native.send(data);
    });
  }

  /** @param {number} [code] @param {string} [reason] */
  close(code, reason) {
    if (this.readyState >= 2) return;
    this.givenUp = this.readyState === 0;
    this.readyState = 2;
    this.#later('up', () => (code === undefined ? this.#native?.close() : this.#native?.close(code, reason)));
  }

  /** Loses the connection, as a browser without network does. Its events are ignored from now on. */
  break() {
    if (this.readyState === 3) return;
    this.givenUp ||= this.readyState === 0;
    this.readyState = 3;
    this.#say(new Event('error'));
    this.#say(new CloseEvent('close', { code: 1006 }));
    this.#native?.close();
  }

  /** Sends delayed messages at once. */
  flush() {
    for (const { act } of this.#queues.up.splice(0)) act();
  }

  /** @param {'up' | 'down'} way @param {() => void} act */
  #later(way, act) {
    const queue = this.#queues[way];
    const now = performance.now();
    const at = Math.max(now + this.#wait(), queue.at(-1)?.at ?? 0);
    if (queue.length === 0 && at - now < 1) return act();
    queue.push({ at, act });
    if (queue.length === 1) this.#arriveAt(way, at);
  }

  /** @param {'up' | 'down'} way @param {number} at */
  #arriveAt(way, at) {
    setTimeout(() => this.#arrive(way), Math.max(0, at - performance.now()));
  }

  /** Does what is due. @param {'up' | 'down'} way */
  #arrive(way) {
    const queue = this.#queues[way];
    const now = performance.now() + 1; // timers are no finer
    while (queue.length > 0 && queue[0].at <= now) {
      queue[0].act();
      queue.shift();
    }
    if (queue.length > 0) this.#arriveAt(way, queue[0].at);
  }

  /** @param {any} event of the native socket */
  #tell(event) {
    if (this.readyState === 3) return; // it was broken meanwhile
    if (event.type === 'open' && this.readyState === 0) this.readyState = 1;
    if (event.type === 'close') this.readyState = 3;
    const { code, reason, wasClean, data } = event;
    if (event.type === 'close') this.#say(new CloseEvent('close', { code, reason, wasClean }));
    else if (event.type === 'message') this.#say(new MessageEvent('message', { data }));
    else this.#say(new Event(event.type));
  }

  /** @param {Event} event */
  #say(event) {
    this.dispatchEvent(event);
    /** @type {any} */ (this)[`on${event.type}`]?.(event);
  }
}
