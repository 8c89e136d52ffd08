// What a page does in the tests: it sends numbered messages and checks those
// that come.
import { Ledger, make } from './numbered.js';

/** A Player plays over one socket that is shaped like WebSocket. */
export class Player {
  socket;
  sent = 0;
  ledger = new Ledger();
  /** Every event but `message`, in order. @type {{type: string, at: number, [more: string]: any}[]} */
  events = [];
  /** How often messages came as what. @type {Record<string, number>} */
  came = {};

  #reading = Promise.resolve();
  #timer = 0;

  /** @param {any} socket */
  constructor(socket) {
    this.socket = socket;
    for (const type of ['open', 'error', 'close', 'detach', 'resume', 'replayed']) {
      socket.addEventListener(type, (event) => this.#note(event));
    }
    socket.addEventListener('message', ({ data }) => this.#take(data));
  }

  /** @param {any} event */
  #note({ type, code, reason, wasClean, attempt, replay, lost, ms }) {
    this.events.push({ type, at: performance.now(), code, reason, wasClean, attempt, replay, lost, ms });
  }

  /** A Blob is read later, but in its turn. @param {any} data */
  #take(data) {
    const kind = typeof data === 'string' ? 'string' : data.constructor.name;
    this.came[kind] = (this.came[kind] ?? 0) + 1;
    const bytes = data instanceof Blob ? data.arrayBuffer() : data;
    this.#reading = this.#reading.then(async () => this.ledger.note(await bytes));
  }

  /** Sends the next message. @param {number} [length] of its filler */
  send(length) {
    const { kind, data } = make(++this.sent, length);
    this.socket.send(kind === 'blob' ? new Blob([data]) : data);
  }

  /** Sends on and on. @param {number} ms between two messages */
  start(ms) {
    this.stop();
    this.#timer = setInterval(() => this.send(), ms);
  }

  stop() {
    clearInterval(this.#timer);
  }

  /** @param {string} type */
  count(type) {
    return this.events.filter((event) => event.type === type).length;
  }

  /** What a test asks for. */
  report() {
    const { socket, sent, came, events } = this;
    const { received, faults } = this.ledger;
    const { session, detached, readyState, bufferedAmount, protocol } = socket;
    const count = Object.fromEntries(events.map(({ type }) => [type, this.count(type)]));
    return { sent, received, faults, came, count, events, session, detached, readyState, bufferedAmount, protocol };
  }
}
