import { once } from 'node:events';
import net from 'node:net';

/** @typedef {import('node:net').Socket} Socket */

/**
 * A Link is one client's connection through the relay. Its two ends close
 * together, until it is stalled: then nothing passes any more, not even the end.
 */
class Link {
  #client;
  #server;
  /** Bytes that may still pass in a direction before the link is torn. */
  #left = { up: Infinity, down: Infinity };
  #stalled = false;
  #torn;

  /** @param {Socket} client @param {Socket} server @param {() => void} torn called when it is */
  constructor(client, server, torn) {
    this.#client = client;
    this.#server = server;
    this.#torn = torn;
    this.#forward(client, server, 'up');
    this.#forward(server, client, 'down');
  }

  /** @param {Socket} from @param {Socket} to @param {'up' | 'down'} way */
  #forward(from, to, way) {
    from.setNoDelay();
    from.on('data', (data) => this.#pass(data, from, to, way));
    from.on('end', () => this.#stalled || to.end());
    from.on('error', () => this.#stalled || this.reset());
  }

  /** @param {Buffer} data @param {Socket} from @param {Socket} to @param {'up' | 'down'} way */
  #pass(data, from, to, way) {
    if (this.#stalled || to.destroyed) return;
    const part = data.subarray(0, this.#left[way]);
    this.#left[way] -= part.length;
    if (this.#left[way] === 0) {
      to.write(part, () => this.#tear()); // first what may pass, then the reset
    } else if (!to.write(part)) {
      from.pause();
      to.once('drain', () => from.resume());
    }
  }

  stall() {
    this.#stalled = true;
  }

  /** @param {'up' | 'down'} way @param {number} bytes */
  tear(way, bytes) {
    this.#left[way] = bytes;
  }

  #tear() {
    this.#torn();
    this.reset();
  }

  reset() {
    for (const socket of [this.#client, this.#server]) {
      // Node never closes a socket that is reset after its end was sent.
      if (socket.writableEnded) socket.destroy();
      else socket.resetAndDestroy();
    }
  }
}

/**
 * A Relay stands between page and gateway as a network does that can fail:
 * it passes bytes, and knows nothing of what they mean.
 */
export class Relay {
  /** TCP connections accepted. */
  connections = 0;
  /** Links that were torn in the middle. */
  torn = 0;

  #port;
  #listener = net.createServer({ allowHalfOpen: true }, (client) => this.#accept(client));
  /** @type {Set<Link>} */
  #links = new Set();

  /** @param {number} port of the gateway on loopback */
  constructor(port) {
    this.#port = port;
  }

  /**
   * @param {{after: (run: () => void) => void}} t at whose end the relay closes
   * @param {string} host host and port of the gateway
   */
  static async start(t, host) {
    const relay = new Relay(Number(new URL(`tcp://${host}`).port));
    await relay.#listen(0);
    t.after(() => {
      relay.#listener.close();
      relay.reset();
    });
    return Object.assign(relay, { host: `127.0.0.1:${relay.#address.port}` });
  }

  get #address() {
    return /** @type {import('node:net').AddressInfo} */ (this.#listener.address());
  }

  /** @param {number} port */
  async #listen(port) {
    this.#listener.listen(port, '127.0.0.1');
    await once(this.#listener, 'listening');
  }

  /** @param {Socket} client */
  #accept(client) {
    this.connections++;
    const server = net.connect({ port: this.#port, host: '127.0.0.1', allowHalfOpen: true });
    const link = new Link(client, server, () => this.torn++);
    this.#links.add(link);
    Promise.all([once(client, 'close'), once(server, 'close')]).then(() => this.#links.delete(link), () => {});
  }

  /** Everything that is connected falls silent for good; new connections pass. */
  stall() {
    for (const link of this.#links) link.stall();
  }

  /** Resets everything that is connected. */
  reset() {
    for (const link of this.#links) link.reset();
  }

  /** What is connected is reset after so many more bytes in a direction. @param {'up' | 'down'} way @param {number} bytes */
  tear(way, bytes) {
    for (const link of this.#links) link.tear(way, bytes);
  }

  /** Refuses new connections until the returned function is called. */
  refuse() {
    const { port } = this.#address;
    this.#listener.close();
    return () => this.#listen(port);
  }
}
