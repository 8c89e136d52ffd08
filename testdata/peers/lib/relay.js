// A stretch of network between a client and the gateway, which breaks or falls silent on demand.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';

// Ways are 'up', towards the gateway, and 'down'.

/**
 * A TCP relay on loopback. Its breaks are resets (RST) towards both sides, as of a NAT
 * that has forgotten the connection.
 */
export class Relay {
  /** Connections through it so far. */
  accepted = 0;
  #target;
  #server = createServer((socket) => this.#accept(socket));
  #links = new Set();
  #down = false;
  #waiting = null; // connections that were begun in a silence
  #spoilt = []; // bytes towards the client after which the next connections break

  /** Opens a relay to HOST:PORT, which the end of `t` closes. */
  static async open(t, target) {
    const relay = new Relay();
    relay.leadTo(target);
    relay.#server.listen(0, '127.0.0.1');
    await once(relay.#server, 'listening');
    t.after(() => relay.#close());
    return relay;
  }

  /** HOST:PORT where clients connect. */
  get addr() {
    return `127.0.0.1:${this.#server.address().port}`;
  }

  /** Leads new connections to HOST:PORT. */
  leadTo(target) {
    this.#target = target;
  }

  /** Breaks every connection, now. */
  cut() {
    for (const link of this.#links) link.reset();
  }

  /** Breaks every connection that there is once it has carried so many more bytes: most likely within a frame. */
  cutAfter(way, bytes) {
    for (const link of this.#links) link.left[way] = bytes;
  }

  /** The next connection breaks after so many bytes towards the client. */
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

  #accept(client) {
    client.on('error', () => {}); // a reset is what we are here for
    if (this.#down) return client.resetAndDestroy();
    this.accepted++;
    if (!this.#waiting) return this.#open(client);
    this.#waiting.push(client);
  }

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
  left = { up: Infinity, down: Infinity }; // bytes that it still carries
  #held = new Set();
  #late = []; // resets and the like that were held back

  constructor(client, target) {
    const [host, port] = target.split(':');
    this.client = client.setNoDelay(true);
    this.gateway = connect({ host, port: Number(port), noDelay: true });
    this.gateway.on('error', () => this.#pass('down', () => client.resetAndDestroy()));
    this.#carry('up', this.client, this.gateway);
    this.#carry('down', this.gateway, this.client);
  }

  /** Nothing passes in these directions, until another call names others. */
  hold(ways) {
    this.#held = new Set(ways);
    for (const [way, from] of [['up', this.client], ['down', this.gateway]]) {
      if (this.#held.has(way)) from.pause();
      else from.resume();
    }
    if (ways.length === 0) for (const run of this.#late.splice(0)) run();
  }

  #pass(way, run) {
    if (this.#held.has(way)) this.#late.push(run);
    else run();
  }

  reset() {
    this.client.resetAndDestroy();
    this.gateway.resetAndDestroy();
  }

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
