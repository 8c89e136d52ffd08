// @ts-check
// The client side of the game, over any socket with the interface of WebSocket.
import { Tally } from './tally.js';

/** @typedef {{seat: number, name: string, wanderer: boolean, x: number, y: number, score: number}} Player */
/** @typedef {{got: number, missed: number, twice: number, late: number}} Counts as in Tally */
/** @typedef {{sent: number, down: Counts}} Carried what one page has counted, for the next one of its session */
/** @typedef {'connecting' | 'playing' | 'away' | 'lost'} Phase */

/** How long a game waits before it reconnects after its connection has closed, in ms. */
const RETRY_MS = 1000;

/** The code with which the game server closes a connection that it has no seat for. */
const FULL_CODE = 1013;

/** The readyState of a socket on which messages can be sent. */
const OPEN = 1;

/**
 * A Game plays in one seat. Like an ordinary game it opens a socket; when that has closed, the
 * seat is lost, and it opens another one a moment later. Of ReseatSocket it uses only the extra
 * events, for display.
 *
 * Phases: connecting until the welcome; playing; away while the socket is detached; lost from the
 * close to the next welcome.
 *
 * Events: `phase`, `upstream`, `welcome`, `state`, `back`, `lose`, and `take`, `leave` and
 * `letter` with a detail.
 */
export class Game extends EventTarget {
  /** @type {Phase} */
  phase = 'connecting';
  /** The size of the arena. */
  world = { width: 1200, height: 675 };
  /** @type {Map<number, Player>} by seat */
  players = new Map();
  /** @type {Map<number, {x: number, y: number}>} */
  gems = new Map();

  /** The own seat, 0 before the first welcome, and its score. */
  seat = 0;
  score = 0;
  /** The id of the session. */
  session = '';
  /** When the newest message came, as of performance.now(). */
  heard = performance.now();
  /** The newest tick. */
  tick = 0;
  /** Inputs sent on this connection, and those that the server has received. */
  sent = 0;
  confirmed = 0;

  /** Counts over all connections. */
  totals = {
    drops: 0,
    resumes: 0,
    lastBackMs: /** @type {number | null} */ (null),
    lastReplay: /** @type {number | null} */ (null),
    replayed: 0,
    dropped: 0,
    seatsLost: 0,
    pointsLost: 0,
    updatesMissed: 0,
    inputsDropped: 0,
  };
  /** The newest loss. */
  lastLoss = { seat: 0, score: 0, code: 0, reason: '' };
  /** Whether the newest connection was closed because no seat was free. */
  full = false;
  /** Whether the gateway is redialling the game server. */
  serverAway = false;
  /** Whether it has done so, in this session. */
  restarted = false;
  /** The number of the attempt to resume that is in progress, from 1. */
  attempt = 0;
  /** How a reloaded page came back into its session; null in a page that began one. @type {{ms: number, replay: number} | null} */
  reloaded = null;
  /** How many messages the page before it had counted. */
  carried = 0;

  #makeSocket;
  /** @type {WebSocket} */
  #socket;
  #down = new Tally();
  /** @type {Counts} */
  #up = NONE;
  /** What was counted on the connections before. @type {{down: Counts, up: Counts}} */
  #before = { down: NONE, up: NONE };
  /** When the newest message came before the seat was lost, as of performance.now(). */
  #heardBefore = 0;
  /** From a resume until its replay is over. */
  #returning = false;
  /** @type {Carried} */
  #earlier;

  /**
   * @param {() => WebSocket} makeSocket makes a connecting socket
   * @param {Carried} [earlier] of the page before, if this one may be in its session
   */
  constructor(makeSocket, earlier = { sent: 0, down: NONE }) {
    super();
    this.#makeSocket = makeSocket;
    this.#earlier = earlier;
    this.#socket = this.#connect();
  }

  /** The socket in use. */
  get socket() {
    return this.#socket;
  }

  /** The messages of the server, counted over all connections. */
  get down() {
    return sum(this.#before.down, this.#down);
  }

  /** The inputs as the server has counted them, over all connections. */
  get up() {
    return sum(this.#before.up, this.#up);
  }

  /** What the next page of this session goes on from. @returns {Carried} */
  get counts() {
    return { sent: this.sent, down: this.down };
  }

  /** Inputs sent that the server has not acknowledged. */
  get pending() {
    return this.sent - this.confirmed;
  }

  /** The own player, if its position is known. */
  get self() {
    return this.players.get(this.seat);
  }

  /**
   * Sends one input. Without an open connection it is dropped and counted; WebSocket.send drops it
   * without counting.
   * @param {{x: number, y: number}} direction
   */
  steer({ x, y }) {
    this.#send({ t: 'steer', x: round(x), y: round(y) });
  }

  /** Asks the server for so many letters, at once, in a second. @param {number} count */
  askForLetters(count) {
    this.#send({ t: 'letters', count });
  }

  /** @param {object} input */
  #send(input) {
    if (this.#socket.readyState !== OPEN) {
      if (this.phase === 'lost') this.totals.inputsDropped++;
      return;
    }
    this.sent++;
    this.#socket.send(JSON.stringify({ s: this.sent, ...input }));
  }

  /** Opens a socket and listens to it. */
  #connect() {
    const socket = this.#makeSocket();
    this.sent = 0;
    this.confirmed = 0;
    socket.addEventListener('message', (event) => this.#take(JSON.parse(event.data)));
    socket.addEventListener('close', (event) => this.#lose(event));
    socket.addEventListener('detach', (event) => this.#detach(/** @type {any} */ (event)));
    socket.addEventListener('resume', (event) => this.#resume(/** @type {any} */ (event)));
    socket.addEventListener('replayed', () => this.#replayed());
    socket.addEventListener('upstream', (event) => {
      this.serverAway = /** @type {any} */ (event).state === 'lost';
      this.restarted = true;
      this.dispatchEvent(new Event('upstream'));
    });
    return socket;
  }

  /** @param {Phase} phase */
  #enter(phase) {
    this.phase = phase;
    this.dispatchEvent(new Event('phase'));
  }

  /** The connection is gone and the socket works on another. @param {{attempt: number}} event */
  #detach({ attempt }) {
    this.attempt = attempt;
    if (this.phase !== 'away') this.totals.drops++;
    this.#enter('away');
  }

  /**
   * The socket has its session on a new connection: after a drop, moved there without one, or
   * after a reload of the page.
   * @param {{replay: number, lost: number, ms: number, reloaded?: boolean}} event
   */
  #resume({ replay, lost, ms, reloaded }) {
    const { totals } = this;
    totals.replayed += replay;
    totals.dropped += lost;
    if (reloaded) this.#goOn(replay, ms);
    if (this.phase !== 'away') return;
    totals.resumes++;
    totals.lastBackMs = ms;
    totals.lastReplay = replay;
    this.heard = performance.now();
    this.#returning = true;
    this.#enter('playing');
  }

  /**
   * This page continues the session of the page before, with its numbers. It asks the server for
   * the state of the whole arena.
   * @param {number} replay
   * @param {number} ms
   */
  #goOn(replay, ms) {
    this.reloaded = { ms, replay };
    this.#down = new Tally(this.#earlier.down);
    this.carried = this.down.got;
    this.sent = this.#earlier.sent;
    this.#send({ t: 'full' });
  }

  /** The replay is over. */
  #replayed() {
    if (!this.#returning) return;
    this.#returning = false;
    this.dispatchEvent(new Event('back'));
  }

  /** The socket has closed: the seat is gone, or was never had. @param {CloseEvent} event */
  #lose({ code, reason }) {
    const had = this.phase !== 'lost' && this.seat !== 0;
    if (had) {
      this.lastLoss = { seat: this.seat, score: this.score, code, reason };
      if (this.phase !== 'away') this.totals.drops++;
      this.totals.seatsLost++;
      this.totals.pointsLost += this.score;
      this.#heardBefore = this.heard;
    }
    this.full = code === FULL_CODE;
    this.serverAway = this.restarted = false;
    this.#before = { down: this.down, up: this.up };
    this.#down = new Tally();
    this.#up = NONE;
    this.#enter('lost');
    if (had) this.dispatchEvent(new Event('lose'));
    setTimeout(() => (this.#socket = this.#connect()), RETRY_MS);
  }

  /** Takes a message of the server. @param {any} message */
  #take(message) {
    this.heard = performance.now();
    this.#down.note(message.n);
    switch (message.t) {
      case 'welcome':
        return this.#takeWelcome(message);
      case 'state':
        return this.#takeState(message);
      case 'sit':
        this.players.set(message.player.seat, message.player);
        return;
      case 'leave':
        return this.#takeLeave(message);
      case 'gem':
        return this.#takeGem(message);
      case 'letter':
        this.dispatchEvent(new CustomEvent('letter', { detail: message }));
        return;
    }
  }

  /** @param {any} welcome */
  #takeWelcome({ seat, session, tick, width, height, players, gems }) {
    if (this.phase === 'lost' && this.seat > 0) this.totals.lastBackMs = performance.now() - this.#heardBefore;
    this.full = false;
    this.world = { width, height };
    this.seat = seat;
    this.session = session;
    this.#passTo(tick);
    this.players = new Map(players.map((/** @type {Player} */ p) => [p.seat, p]));
    this.score = this.self?.score ?? 0;
    this.gems = new Map(gems.map((/** @type {number[]} */ [id, x, y]) => [id, { x, y }]));
    this.#enter('playing');
    this.dispatchEvent(new Event('welcome'));
  }

  /** @param {any} state */
  #takeState({ tick, players, in: inputs }) {
    this.#passTo(tick - 1);
    this.tick = tick;
    this.#up = inputs;
    this.confirmed = inputs.got + inputs.missed;
    for (const [seat, x, y, score] of players) Object.assign(this.players.get(seat) ?? {}, { x, y, score });
    this.score = this.self?.score ?? 0;
    this.dispatchEvent(new Event('state'));
  }

  /** Counts the ticks that never arrived. @param {number} tick the newest that is over */
  #passTo(tick) {
    if (this.tick > 0 && tick > this.tick) this.totals.updatesMissed += tick - this.tick;
    this.tick = Math.max(this.tick, tick);
  }

  /** @param {{seat: number, score: number}} leave */
  #takeLeave({ seat, score }) {
    const player = this.players.get(seat);
    this.players.delete(seat);
    if (player) this.dispatchEvent(new CustomEvent('leave', { detail: { ...player, score } }));
  }

  /** @param {{gem: [number, number, number], by: number}} message */
  #takeGem({ gem: [id, x, y], by }) {
    const was = this.gems.get(id);
    this.gems.set(id, { x, y });
    if (was) this.dispatchEvent(new CustomEvent('take', { detail: { ...was, by } }));
  }
}

/** @param {number} v */
function round(v) {
  return Math.round(v * 100) / 100;
}

/** @type {Readonly<Counts>} */
const NONE = Object.freeze({ got: 0, missed: 0, twice: 0, late: 0 });

/**
 * The sum of the counts of several connections.
 * @param {Counts} a
 * @param {Counts} b
 * @returns {Counts}
 */
function sum(a, b) {
  return { got: a.got + b.got, missed: a.missed + b.missed, twice: a.twice + b.twice, late: a.late + b.late };
}
