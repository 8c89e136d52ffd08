// A stretch of network between a client and the gateway, which breaks or falls silent on demand.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';

/** @typedef {'up' | 'down'} Way `up` is towards the gateway */

/**
 * A TCP relay on loopback. Its breaks are resets (RST) towards both sides, as of a NAT
 * that has forgotten the connection.
 */
export class Relay {
  /** Connections through it so far. */
  accepted = 0;
  #target;
  #server = createServer((socket) => this.#accept(socket));
  /** @type {Set<Link>} */
  #links = new Set();
  #down = false;
  /** Connections that were begun in a silence. @type {import('node:net').Socket[] | null} */
  #waiting = null;
  /** @type {number[]} bytes towards the client after which the next connections break */
  #spoilt = [];

  /** @param {string} target HOST:PORT */
  constructor(target) {
    this.#target = target;
  }

  /**
   * @param {import('node:test').TestContext} t whose end closes it
   * @param {string} target HOST:PORT
   */
  static async open(t, target) {
    const relay = new Relay(target);
    relay.#server.listen(0, '127.0.0.1');
    await once(relay.#server, 'listening');
    t.after(() => relay.#close());
    return relay;
  }

  /** HOST:PORT where clients connect. */
  get addr() {
    return `127.0.0.1:${this.#server.address().port}`;
  }

  /** Leads new connections elsewhere. @param {string} target HOST:PORT */
  leadTo(target) {
    this.#target = target;
  }

  /** Breaks every connection, now. */
  cut() {
    for (const link of this.#links) link.reset();
  }

  /**
   * Breaks every connection that there is once it has carried so many more bytes: most
   * likely within a frame.
   * @param {Way} way
   * @param {number} bytes
   */
  cutAfter(way, bytes) {
    for (const link of this.#links) link.left[way] = bytes;
  }

  /** The next connection breaks after so many bytes towards the client. @param {number} bytes */
  spoilNext(bytes) {
    this.#spoilt.push(bytes);
  }

  /** From now on nothing gets through: what there is breaks, what is new is reset. */
  goDown() {
    this.#down = true;
    this.cut();
  }

  comeUp() {
    this.#down = false;
  }

  /**
   * Silence: nothing passes in these directions, not even the end of a connection, until the
   * returned function is called; then all of it passes, late. The TCP connections stay open.
   * A new one needs both directions, and passes nothing until then.
   * @param {Way[]} ways
   */
  hold(ways) {
    const links = [...this.#links];
    this.#waiting = [];
    for (const link of links) link.hold(ways);
    return () => {
      const waiting = this.#waiting;
      this.#waiting = null;
      for (const link of links) link.hold([]);
      for (const client of waiting) if (!client.destroyed) this.#open(client);
    };
  }

  /** @param {import('node:net').Socket} client */
  #accept(client) {
    client.on('error', () => {}); // a reset is what we are here for
    if (this.#down) return client.resetAndDestroy();
    this.accepted++;
    if (!this.#waiting) return this.#open(client);
    this.#waiting.push(client);
  }

  /** @param {import('node:net').Socket} client */
  #open(client) {
    const link = new Link(client, this.#target);
    link.left.down = this.#spoilt.shift() ?? Infinity;
    this.#links.add(link);
    client.once('close', () => this.#links.delete(link));
  }

  #close() {
    this.#server.close();
    this.cut();
    for (const client of this.#waiting ?? []) client.destroy();
  }
}

/** One connection through the relay. */
class Link {
  /** Bytes that it still carries, each way. */
  left = { up: Infinity, down: Infinity };
  /** @type {Set<Way>} */
  #held = new Set();
  /** Resets and the like that were held back. @type {(() => void)[]} */
  #late = [];

  /** @param {import('node:net').Socket} client @param {string} target */
  constructor(client, target) {
    const [host, port] = target.split(':');
    this.client = client.setNoDelay(true);
    this.gateway = connect({ host, port: Number(port), noDelay: true });
    this.gateway.on('error', () => this.#pass('down', () => client.resetAndDestroy()));
    this.#carry('up', this.client, this.gateway);
    this.#carry('down', this.gateway, this.client);
  }

  /** Nothing passes in these directions, until another call names others. @param {Way[]} ways */
  hold(ways) {
    this.#held = new Set(ways);
    for (const [way, from] of [['up', this.client], ['down', this.gateway]]) {
      if (this.#held.has(way)) from.pause();
      else from.resume();
    }
    if (ways.length === 0) for (const run of this.#late.splice(0)) run();
  }

  /** @param {Way} way @param {() => void} run */
  #pass(way, run) {
    if (this.#held.has(way)) this.#late.push(run);
    else run();
  }

  reset() {
    this.client.resetAndDestroy();
    this.gateway.resetAndDestroy();
  }

  /**
   * @param {Way} way
   * @param {import('node:net').Socket} from
   * @param {import('node:net').Socket} to
   */
  #carry(way, from, to) {
    from.on('data', (chunk) => {
      if (chunk.length >= this.left[way]) return to.write(chunk.subarray(0, this.left[way]), () => this.reset());
      this.left[way] -= chunk.length;
      if (!to.write(chunk)) from.pause();
    });
    to.on('drain', () => this.#held.has(way) || from.resume());
    from.once('end', () => to.end());
    from.once('close', () => this.#pass(way, () => to.destroy()));
  }
}
