// @ts-check
// In a cluster the page acts as its own load balancer.

/** If the page closes a connection that had no answer for this long, the node does not answer. In ms. */
const UNANSWERED_MS = 3000;

/**
 * A Line makes sockets. It sends connections to another node than the one of their URL, and away from
 * one that does not answer. Event: `moved` when a node has not answered.
 */
export class Line extends EventTarget {
  /** The URL of the node that connections go to; null for that of their own URL. @type {string | null} */
  through = null;
  /** The nodes that there are, by their URLs. @type {string[]} */
  others = [];
  /** A class to be used as WebSocket is. */
  WebSocket;
  /** @type {Set<any>} */
  #open = new Set();

  /** @param {{Native?: any}} [own] for tests */
  constructor({ Native = globalThis.WebSocket } = {}) {
    super();
    const line = this;
    this.WebSocket = class extends Native {
      /** Whether the page closed it before it was open. */
      givenUp = false;

      /** @param {string} url @param {string | string[]} [protocols] */
      constructor(url, protocols = []) {
        const to = line.#led(url);
        super(to, protocols);
        line.#open.add(this);
        this.addEventListener('close', () => line.#open.delete(this));
        line.#watch(this, url, to);
      }

      /** @param {any[]} how */
      close(...how) {
        this.givenUp ||= this.readyState === 0;
        super.close(...how);
      }
    };
  }

  /** Loses every connection. */
  cut() {
    for (const socket of this.#open) socket.close();
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
   * @param {any} socket @param {string} url @param {string} to where it was led
   */
  #watch(socket, url, to) {
    const since = performance.now();
    let answered = false;
    socket.addEventListener('open', () => (answered = true));
    socket.addEventListener('close', () => {
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
