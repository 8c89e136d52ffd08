// @ts-check
// What the panel knows of the page's sockets: what it sees on the wire, below the client, and what
// the application gets and sends, above it.

import { Wire } from './wire.js';

/** Control messages begin with it: protocol section 3. */
const DLE = '\u0010';

/** An input is missed if the gateway, attached all the time, does not have it after this time, in ms. */
const UNDERWAY_MS = 10_000;
/** A session that ends so soon after an outage ends for it, in ms. */
const SOON_MS = 3000;

/** What a button begins is over after this time, but for a slow line, in ms. */
const LASTS_MS = 60_000;

/** @typedef {'connecting' | 'attached' | 'silent' | 'detached' | 'closed' | 'plain'} State */

/** One session of the page, or one socket without Reseat. Events: `story`, with text and mood; `detach`. */
export class Link extends EventTarget {
  /** @type {any} the application's socket */
  socket = null;
  /** The newest resume token. */
  token = '';
  /** @type {'connecting' | 'attached' | 'detached' | 'closed' | 'plain'} */
  #state = 'connecting';
  /** What the application got and sent. */
  delivered = 0;
  sends = 0;
  /** Messages before this page had the session. */
  before = 0;
  /** Dropped by --overflow drop-oldest. */
  lost = 0;
  /** Replaced by newer ones: --newest. */
  skipped = 0;
  replayed = 0;
  missed = 0;
  duplicated = 0;
  /** The longest replay, and the most that the gateway was seen to keep. */
  longestReplay = 0;
  most = { messages: 0, bytes: 0 };
  /** How often the gateway lost the game server. */
  upstreamLost = 0;
  /** Outages as the player felt them, in ms. @type {number[]} */
  outages = [];
  /** The longest round trip, and the longest time until an outage was noticed, in ms. */
  slowest = 0;
  noticed = 0;
  /** When the panel last began a fault, since the last resume; 0: it did not. */
  cutAt = 0;
  /** The longest wait for a message since then, in ms. */
  #wait = 0;
  wire = new Wire();
  /** The session as the gateway describes it. @type {any} */
  gateway = null;
  heard = performance.now();
  /** The usual time between two messages, in ms. */
  gap = 200;
  /** Messages of a replay that are to come, and when the connection was lost. */
  #replaying = 0;
  #lostAt = 0;
  #backAt = 0;
  /** How the session ended: for an outage, or since the page left. @type {{how: string, outage: boolean, left: boolean} | undefined} */
  ended;
  /** @type {{at: number, sends: number}[]} */
  #samples = [];

  /** @param {string} session '' without Reseat @param {string} url */
  constructor(session, url) {
    super();
    this.session = session;
    /** What the page asked for, and where the connection goes: in a cluster to another node. */
    this.asked = url;
    this.url = new URL(url);
    /** The node that the session was first at. */
    this.home = this.at('');
    this.name = session ? 'ReseatSocket' : 'WebSocket';
  }

  /** Many games say nothing for a while: so only what follows a cut is silence. @returns {State} */
  get state() {
    const now = performance.now();
    return (this.#state === 'attached' || this.#state === 'plain') &&
      this.cutAt > 0 &&
      now - this.cutAt < LASTS_MS &&
      now - this.heard > Math.max(1000, 5 * this.gap)
      ? 'silent'
      : this.#state;
  }

  /** The panel begins a fault. */
  cut() {
    this.cutAt = performance.now();
    this.#wait = 0;
  }

  /** How long the page has waited for a message, at most, since the cut. */
  #waited() {
    return this.cutAt && Math.max(this.#wait, performance.now() - Math.max(this.heard, this.cutAt));
  }

  /** The address of the gateway for a path. @param {string} path */
  at(path) {
    return this.url.origin.replace(/^ws/, 'http') + path;
  }

  /** The application's socket is open. @param {any} socket */
  adopt(socket) {
    this.socket = socket;
    this.#enter('attached');
    const { send, close } = socket;
    socket.send = (/** @type {any} */ data) => {
      if (!this.#simulated) this.sends++; // else it is the answer, which goes nowhere
      this.wire.said(data, performance.now());
      return send.call(socket, data);
    };
    let left = false; // by the page
    socket.close = (/** @type {any[]} */ ...why) => {
      left = true;
      return close.apply(socket, why);
    };
    socket.addEventListener('message', () => this.note());
    socket.addEventListener('detach', () => {
      if (this.#state === 'detached') return; // an attempt failed
      this.noticed = Math.max(this.noticed, this.#waited());
      this.tell('Connection lost. The client reconnects.', 'warn');
      this.#enter('detached');
      this.dispatchEvent(new Event('detach'));
    });
    socket.addEventListener('resume', (/** @type {any} */ { detail }) => {
      const { replay, lost, skipped, reloaded } = detail;
      const ms = Math.max(detail.ms, this.#waited()); // to the client, late bytes are a sign of life
      this.#enter('attached');
      this.heard = performance.now();
      this.#replaying = replay;
      this.#lostAt = this.heard - ms;
      this.#backAt = this.heard;
      this.cutAt = 0;
      this.replayed += replay;
      this.longestReplay = Math.max(this.longestReplay, replay);
      this.lost += lost;
      if (!reloaded) this.outages.push(ms);
      this.tell(
        `Back after ${seconds(ms)}, ${replay} replayed${skipped ? `, ${skipped} skipped` : ''}${lost ? `, ${lost} dropped` : ''}.`,
        lost ? 'bad' : 'good',
      );
    });
    socket.addEventListener('skip', (/** @type {any} */ { detail }) => {
      this.skipped += detail.skipped;
    });
    socket.addEventListener('upstream', (/** @type {any} */ { detail }) => {
      if (detail.state === 'lost') this.upstreamLost++;
      this.tell(detail.state === 'lost' ? 'The game server is away.' : 'The game server is back.', 'warn');
    });
    socket.addEventListener('close', (/** @type {CloseEvent} */ { code, reason }) => {
      const now = performance.now();
      const away = this.#state === 'detached';
      const soon = away ? 'in an outage' : this.#backAt && now - this.#backAt < SOON_MS ? 'right after an outage' : '';
      const who = `${left ? 'the page closed it' : code}${reason && ` ${reason}`}`;
      const outage = soon !== '';
      this.ended = { how: who + (soon && `, ${soon}`), outage, left: left && !outage };
      this.#enter('closed');
      this.tell(`Session over: ${this.ended.how}.`, this.ended.left ? '' : 'bad');
    });
  }

  // ---- without Reseat

  /** Sessions that ended with their connection, and the time until the page had another. */
  sessionsLost = 0;

  /** The page has closed its socket, which was alive. */
  #left = false;

  leave() {
    this.#left = this.state !== 'silent';
  }

  /** Whether the page has lost its session, and opened no other. */
  get missing() {
    return this.#state === 'closed' && this.sessionsLost > 0 && this.#lostAt > 0;
  }

  /** The page opens a plain socket. @param {WebSocket} socket */
  open(socket) {
    if (this.socket && this.#state !== 'closed') this.closed(1006, ''); // a page does not wait for the end of a silent one
    this.socket = socket;
    this.#left = false;
    if (!this.#lostAt) this.#enter('connecting');
  }

  opened() {
    this.#enter('plain');
    this.heard = performance.now();
    if (!this.#lostAt) return;
    const ms = performance.now() - this.#lostAt;
    this.#lostAt = 0;
    this.outages.push(ms);
    this.tell(`A new connection after ${seconds(ms)}: to the game server this is a new player.`, 'bad');
  }

  /** @param {number} code @param {string} reason */
  closed(code, reason) {
    this.#enter('closed');
    if (this.#left || this.#lostAt) return; // or another attempt failed
    this.sessionsLost++;
    this.#lostAt = this.heard;
    this.tell(`Connection lost (${code}${reason && ` ${reason}`}), and the session with it.`, 'bad');
  }

  /** The client dispatches a heartbeat that the game server did not send: data-keepalive. */
  #simulated = false;

  /** A plain connection was silent, and is heard again. @param {number} ms */
  #survived(ms) {
    this.outages.push(ms);
    this.tell(`Heard again after ${seconds(ms)}: the connection has survived.`, 'good');
  }

  /** A message of the session comes, and the page has it when dispatch is called. @param {MessageEvent} event @param {() => boolean} dispatch */
  hear({ data, origin }, dispatch) {
    this.#simulated = origin === '';
    if (!this.#simulated) this.#hear(data);
    const done = dispatch();
    this.#simulated = false;
    return done;
  }

  /** @param {unknown} data */
  #hear(data) {
    const replayed = this.#replaying > 0;
    if (replayed) this.#replaying--;
    this.wire.heard(data, performance.now(), replayed ? this.#lostAt : undefined);
  }

  note() {
    if (this.#simulated) return;
    const now = performance.now();
    this.#wait = this.#waited();
    if (!this.session && this.state === 'silent') this.#survived(now - Math.max(this.heard, this.cutAt));
    if (this.state !== 'silent') this.gap += (Math.min(now - this.heard, 5000) - this.gap) / 16;
    this.heard = now;
    this.delivered++;
  }

  /** @param {'connecting' | 'attached' | 'detached' | 'closed' | 'plain'} state */
  #enter(state) {
    this.#state = state;
    this.#samples = [];
  }

  /** @param {string} text @param {'' | 'good' | 'warn' | 'bad'} [mood] */
  tell(text, mood = '') {
    this.dispatchEvent(Object.assign(new Event('story'), { text, mood }));
  }

  /** The number of the newest message that the application got, or that another replaced. */
  get counted() {
    return this.before + this.lost + this.skipped + this.delivered;
  }

  /**
   * Compares what the application got and sent with the counts of the gateway. Messages under way make
   * both differ for a moment, in one direction only: so only the other is a fault, and the most that was
   * seen of it counts.
   * @param {any} gateway its description @param {number} counted when it was asked for
   */
  compare(gateway, counted) {
    this.gateway = gateway;
    this.slowest = Math.max(this.slowest, gateway.rtt_ms ?? 0);
    this.most.messages = Math.max(this.most.messages, gateway.buffer_messages);
    this.most.bytes = Math.max(this.most.bytes, gateway.buffer_bytes);
    const now = performance.now();
    this.#samples.push({ at: now, sends: this.sends });
    while (this.#samples.length > 1 && this.#samples[1].at < now - UNDERWAY_MS) this.#samples.shift();
    const [old] = this.#samples;
    const unsent = old.at <= now - UNDERWAY_MS && this.#state === 'attached' ? old.sends - gateway.received : 0;
    this.missed = Math.max(0, gateway.acked - this.counted) + (this.before ? 0 : Math.max(0, unsent)) + this.lost;
    const doubled = Math.max(0, counted - gateway.sent) + (this.before ? 0 : Math.max(0, gateway.written - this.sends));
    this.duplicated = Math.max(this.duplicated, doubled);
  }
}

/** @param {number} ms */
export function seconds(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/** The max number of sockets that are shown. */
const MOST = 20;

/** The sockets of the page. Event: `change` when there is one more. */
export class Links extends EventTarget {
  /** @type {Link[]} sessions first, the oldest first */
  all = [];
  /** Stands for the page's plain sockets, as a resume token does for a session. */
  key = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

  /** Whether a frame of the page has a panel: set by that. */
  framed = false;

  /** The gateway's host, and the one that the page connects to past it. */
  host = '';
  elsewhere = '';

  /** Nodes that are lost to the page, by their host. @type {Map<string, {to: URL, until: number}>} */
  #lost = new Map();

  /** Where the node of a host is led to, if it is lost. @param {string} host */
  #leadOf(host) {
    const node = this.#lost.get(host);
    return node && performance.now() < node.until ? node.to : undefined;
  }

  /**
   * Leads what connects to a node to another one for a while, as a load balancer does. Returns its host.
   * @param {string} host @param {string[]} nodes the others @param {number} ms
   */
  lead(host, nodes, ms) {
    const others = nodes.map((node) => new URL(node));
    const to = others.find((other) => !this.#leadOf(other.host)) ?? others[0];
    this.#lost.set(host, { to, until: performance.now() + ms });
    return to.host;
  }

  /** Where a connection goes. @param {string | URL} url */
  led(url) {
    if (this.#lost.size === 0 || !URL.canParse(url, document.baseURI)) return url; // the browser says what is wrong with it
    const at = new URL(url, document.baseURI);
    const asked = at.host;
    for (let i = 0; i < this.#lost.size; i++) {
      const to = this.#leadOf(at.host);
      if (!to) break;
      at.protocol = to.protocol.replace('http', 'ws');
      at.host = to.host;
    }
    return at.host === asked ? url : at;
  }

  /** @param {string} session @param {string} url @returns {Link} */
  of(session, url) {
    return this.all.find((each) => each.session === session) ?? this.#add(new Link(session, url));
  }

  /** The plain socket of a path: a page opens one after the other, each with a query of its own. @param {string} url */
  plain(url) {
    const [path] = url.split('?');
    const before = this.all.find(
      ({ session, socket, asked }) => !session && socket.readyState > 1 && asked.split('?')[0] === path,
    );
    return before ?? this.#add(new Link('', url));
  }

  /** Those that the page has not left, nor replaced by another of the same path. */
  get current() {
    return this.all.filter(
      ({ state, ended, url }, i) =>
        state !== 'closed' ||
        !(ended?.left || this.all.slice(i + 1).some((later) => later.url.pathname === url.pathname)),
    );
  }

  /** @param {Link} link */
  #add(link) {
    const at = link.session ? this.all.findIndex(({ session }) => !session) : -1;
    this.all.splice(at < 0 ? this.all.length : at, 0, link); // sessions first
    if (this.all.length > MOST)
      this.all.splice(
        Math.max(
          0,
          this.all.findIndex(({ state }) => state === 'closed'),
        ),
        1,
      );
    this.dispatchEvent(new Event('change'));
    return link;
  }
}

/** The key under which the installed WebSocket of the client has the one that it replaced. */
const INSTALLED = Symbol.for('reseat.installed');

/**
 * Watches every WebSocket that the page opens from now on, and every ReseatSocket.
 * @param {any} scope the window
 * @param {Links} links
 * @param {string} host of the gateway
 * @param {boolean} without whether the client must not be installed
 */
export function tap(scope, links, host, without) {
  links.host = host;
  const Native = scope.WebSocket;
  class WebSocket extends Native {
    /** @type {Link | undefined} */
    #plain;
    /** What the page asked for, if the connection goes elsewhere. */
    #asked = '';

    /** @param {string | URL} url @param {string | string[]} [protocols] */
    constructor(url, protocols = []) {
      const offers = [protocols].flat();
      const reseat = offers.includes('reseat.v1');
      const given = reseat ? url : withKey(url, host, links.key);
      const to = links.led(given);
      super(to, protocols);
      if (to !== given) this.#asked = withoutKey(new URL(given, document.baseURI).href);
      const self = /** @type {any} */ (this);
      if (reseat) watchWire(self, offers, links, super.url);
      else if (super.url.includes(links.key)) {
        this.#plain = links.plain(this.url);
        this.#plain.url = new URL(withoutKey(super.url));
        watchPlain(self, this.#plain);
      }
      if (new URL(super.url).host !== host) links.elsewhere = new URL(super.url).host;
    }

    get url() {
      return this.#asked || withoutKey(super.url);
    }

    /** @param {any} data */
    send(data) {
      if (this.#plain) this.#plain.sends++;
      super.send(data);
    }

    /** @param {any[]} why */
    close(...why) {
      this.#plain?.leave();
      super.close(...why);
    }
  }
  scope.WebSocket = WebSocket;
  if (without) /** @type {any} */ (WebSocket)[INSTALLED] = { uninstall() {}, native: WebSocket };
  // The application's sockets, whichever copy of the client they are made by.
  const { dispatchEvent } = scope.EventTarget.prototype;
  scope.EventTarget.prototype.dispatchEvent = function (/** @type {Event} */ event) {
    if (event.type === 'open' && this?.session && 'detached' in this && !(this instanceof Native))
      links.of(this.session, this.url).adopt(this);
    const link = event.type === 'message' && links.all.find(({ session, socket }) => session && socket === this);
    const dispatch = () => dispatchEvent.call(this, event);
    return link ? link.hear(/** @type {MessageEvent} */ (event), dispatch) : dispatch();
  };
}

const PARAM = 'reseat.dev';

/** @param {string} url */
const withoutKey = (url) => url.replace(new RegExp(`[?&]${PARAM}=[0-9a-f]+`), '');

/** Only the gateway may see the key. @param {string | URL} url @param {string} host @param {string} key */
function withKey(url, host, key) {
  try {
    const to = new URL(url, document.baseURI);
    if (to.host !== host) return url;
    return `${to}${to.search ? '&' : '?'}${PARAM}=${key}`.replace('?&', '?');
  } catch {
    return url; // the browser says what is wrong with it
  }
}

/** @param {WebSocket} transport @param {string[]} offers @param {Links} links @param {string} url where it goes */
function watchWire(transport, offers, links, url) {
  /** @type {Link | undefined} */
  let link;
  transport.addEventListener('message', ({ data }) => {
    if (typeof data !== 'string' || data[0] !== DLE) return;
    const [verb, argument] = split(data.slice(1));
    if (verb === 'hello') {
      const known = links.all.length;
      link = links.of(argument.session, url);
      link.url = new URL(url); // in a cluster its node may have changed
      const received = offers.find((offer) => offer.startsWith('reseat.received.'));
      if (links.all.length > known && received) link.before = Number(received.slice(16)) + argument.lost;
    }
    if (link && argument.token) link.token = argument.token;
  });
}

/** @param {string} text @returns {[string, any]} */
function split(text) {
  const [verb] = text.split(' ', 1);
  if (verb !== 'hello' && verb !== 'token') return [verb, {}];
  return [verb, JSON.parse(text.slice(verb.length + 1))];
}

/** @param {WebSocket} transport @param {Link} link */
function watchPlain(transport, link) {
  link.open(transport);
  const own = () => link.socket === transport; // not given up
  transport.addEventListener('open', () => own() && link.opened());
  transport.addEventListener('message', () => own() && link.note());
  transport.addEventListener('close', ({ code, reason }) => own() && link.closed(code, reason));
}
