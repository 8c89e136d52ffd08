import { once } from 'node:events';
import net from 'node:net';

/** @typedef {import('node:net').Socket} Socket */

/** Whether it is a page's question over HTTP for the gateway, not a WebSocket's handshake. @param {Buffer} data */
const isProbe = (data) => data.includes('?reseat.alive ');

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
  /** Directions in which nothing passes for the time being. @type {Set<'up' | 'down'>} */
  #held = new Set();
  #torn;
  #pace;
  #heard;

  /**
   * @param {Socket} client
   * @param {Socket} server
   * @param {() => void} torn called when it is
   * @param {(way: 'up' | 'down', bytes: number) => number} pace ms that so many bytes take
   * @param {(data: Buffer) => void} heard called with what the client says
   */
  constructor(client, server, torn, pace, heard) {
    this.#client = client;
    this.#server = server;
    this.#torn = torn;
    this.#pace = pace;
    this.#heard = heard;
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
    if (way === 'up') this.#heard(data);
    const part = data.subarray(0, this.#left[way]);
    this.#left[way] -= part.length;
    if (this.#left[way] === 0) {
      to.write(part, () => this.#tear()); // first what may pass, then the reset
      return;
    }
    const ms = this.#pace(way, part.length);
    const full = !to.write(part);
    if (ms === 0 && !full) return;
    from.pause();
    const goOn = () => this.#held.has(way) || from.resume();
    if (ms > 0) setTimeout(goOn, ms);
    else to.once('drain', goOn);
  }

  /** Nothing passes in these directions until another call names others; the ends do not learn of it. @param {('up' | 'down')[]} ways */
  hold(ways) {
    this.#held = new Set(ways);
    for (const [way, from] of /** @type {const} */ ([
      ['up', this.#client],
      ['down', this.#server],
    ])) {
      if (this.#held.has(way)) from.pause();
      else from.resume();
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
  /** Connections on which a WebSocket's handshake came. */
  handshakes = 0;
  /** Links that were torn in the middle. */
  torn = 0;

  /** Bytes a second that pass each link in a direction. */
  rate = { up: Infinity, down: Infinity };

  /** What lets in each of the connections that are held. @type {Set<() => void> | null} */
  #waiting = null;
  #probesPass = false;
  /** Clients that have said something. @type {WeakSet<Socket>} */
  #known = new WeakSet();
  /** What becomes of new connections instead. @type {((client: Socket) => void) | null} */
  #instead = null;
  #port = 0;
  /** Bytes towards the client after which the next connections are torn. @type {number[]} */
  #spoilt = [];
  #listener = net.createServer({ allowHalfOpen: true }, (client) => this.#accept(client));
  /** @type {Set<Link>} */
  #links = new Set();

  /**
   * @param {{after: (run: () => void) => void}} t at whose end the relay closes
   * @param {string} host host and port of the gateway
   * @param {net.ListenOptions} [where] what is not as usual of where it listens
   */
  static async start(t, host, where = {}) {
    const relay = new Relay();
    relay.leadTo(host);
    await relay.#listen({ port: 0, host: '127.0.0.1', ...where });
    t.after(() => {
      relay.#listener.close();
      relay.reset();
    });
    return Object.assign(relay, { host: `${relay.#address.address}:${relay.#address.port}` });
  }

  /** Leads new connections to a gateway on loopback. @param {string} host its host and port */
  leadTo(host) {
    this.#port = Number(new URL(`tcp://${host}`).port);
  }

  /** Connections that get nowhere for now. */
  get waiting() {
    return this.#waiting?.size ?? 0;
  }

  get #address() {
    return /** @type {import('node:net').AddressInfo} */ (this.#listener.address());
  }

  /** @param {net.ListenOptions} where */
  async #listen(where) {
    this.#listener.listen(where);
    await once(this.#listener, 'listening');
  }

  /** @param {Socket} client */
  #accept(client) {
    if (this.#instead) this.#instead(client.on('error', () => {}).on('end', () => client.destroy()));
    else if (this.#waiting) this.#keepWaiting(client, this.#waiting);
    else this.#open(client);
  }

  /** @param {Socket} client @param {Buffer} data */
  #hear(client, data) {
    if (this.#known.has(client)) return;
    this.#known.add(client);
    if (!isProbe(data)) this.handshakes++;
  }

  /**
   * A connection that gets nowhere for now, as one whose SYN is lost: should the client give
   * it up meanwhile, nobody ever hears of it.
   * @param {Socket} client
   * @param {Set<() => void>} waiting
   */
  #keepWaiting(client, waiting) {
    const read = (data) => {
      this.#hear(client, data);
      said.push(data);
      if (this.#probesPass && isProbe(data)) enter();
    };
    const said = /** @type {Buffer[]} */ ([]);
    const enter = () => {
      waiting.delete(enter);
      client.off('data', read).off('end', leave).off('error', leave);
      this.#open(client).write(Buffer.concat(said));
    };
    const leave = () => {
      waiting.delete(enter);
      client.destroy();
    };
    client.on('data', read).on('end', leave).on('error', leave);
    waiting.add(enter);
  }

  /** @param {Socket} client */
  #open(client) {
    const server = net.connect({ port: this.#port, host: '127.0.0.1', allowHalfOpen: true });
    const link = new Link(
      client,
      server,
      () => this.torn++,
      (way, bytes) => (1000 * bytes) / this.rate[way],
      (data) => this.#hear(client, data),
    );
    link.tear('down', this.#spoilt.shift() ?? Infinity);
    this.#links.add(link);
    Promise.all([once(client, 'close'), once(server, 'close')]).then(
      () => this.#links.delete(link),
      () => {},
    );
    return server;
  }

  /**
   * What is connected falls silent in these directions, with its TCP connections held, until
   * the returned function is called. New connections pass.
   * @param {('up' | 'down')[]} ways
   */
  hold(ways = ['up', 'down']) {
    const links = [...this.#links];
    for (const link of links) link.hold(ways);
    return () => links.forEach((link) => link.hold([]));
  }

  /** New connections get nowhere until the returned function is called. @param {{probesPass?: boolean}} options */
  holdNew({ probesPass = false } = {}) {
    this.#probesPass = probesPass;
    const waiting = (this.#waiting = /** @type {Set<() => void>} */ (new Set()));
    return () => {
      this.#waiting = null;
      for (const enter of waiting) enter();
    };
  }

  /** New connections are accepted, and this becomes of them, until the returned function is called. @param {(client: Socket) => void} instead */
  divert(instead) {
    this.#instead = instead;
    return () => void (this.#instead = null);
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

  /** The next connection is reset after so many bytes towards the client. @param {number} bytes */
  spoilNext(bytes) {
    this.#spoilt.push(bytes);
  }

  /** Resets what is connected, and each new connection until the returned function is called. */
  goDown() {
    const end = this.divert((client) => void client.resetAndDestroy());
    this.reset();
    return end;
  }

  /** What is connected falls silent for good, and new connections are never answered until the returned function is called. */
  swallow() {
    this.stall();
    return this.divert(() => {});
  }

  /** Resets what is connected, and refuses new connections until the returned function is called. */
  refuse() {
    const { port, address } = this.#address;
    this.#listener.close();
    this.reset();
    return () => this.#listen({ port, host: address });
  }
}
