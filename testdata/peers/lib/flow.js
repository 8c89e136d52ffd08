// Numbered traffic in one direction.

import assert from 'node:assert/strict';

/** How many messages are on their way at any time. */
const AHEAD = 48;

/** What message n is filled with: of any length up to 1,500 characters, DLE among the first of some. */
export const filler = (n) => (n % 5 === 0 ? '\x10' : '') + String.fromCharCode(97 + (n % 26)).repeat((n * 7919) % 1500);

/**
 * Messages numbered from 1, each filled by its number. As many are sent as keep AHEAD of
 * them on their way, so that a cut always falls between messages; the receiving side hands
 * in what it got. Everything but the next number with its own filler is a fault.
 */
export class Flow {
  sent = 0;
  received = 0;
  faults = [];
  #name;
  #send;
  #running = false;
  #timer;
  #waiting = [];

  /** `send(n, filler, text)` sends a message; `text` is both in one, as `read` takes them. The name is for faults. */
  constructor(name, send) {
    this.#name = name;
    this.#send = send;
  }

  start() {
    this.#running = true;
    this.#fill();
  }

  /** Sends at the steady rate of a game, whatever becomes of it. with ms between two messages */
  beat(ms) {
    this.#timer ??= setInterval(() => this.#next(), ms);
  }

  /** Sends no more; resolves when all that was sent has come. */
  async stop() {
    this.#running = false;
    clearInterval(this.#timer);
    await this.#reach(this.sent);
    assert.deepEqual(this.faults, []);
    assert.equal(this.received, this.sent);
  }

  /** Sends one message, and resolves when it has come. */
  one() {
    this.#next();
    return this.#reach(this.sent);
  }

  /** Resolves when n more messages have come. */
  progress(n) {
    return this.#reach(this.received + n);
  }

  /** The receiving side got a message. */
  heard(n, text) {
    if (n !== this.received + 1) this.fault(`message ${n} has come, want ${this.received + 1}`);
    if (text !== filler(n)) this.fault(`message ${n} is ${JSON.stringify(text?.slice(0, 60))}, want ${JSON.stringify(filler(n).slice(0, 60))}`);
    this.received = n;
    this.#waiting = this.#waiting.filter(({ at, done }) => this.received < at || done());
    this.#fill();
  }

  /** The receiving side got number and filler in one. Returns the number. */
  read(data) {
    const [, n, text] = /^(\d+) ([^]*)$/.exec(String(data)) ?? [];
    this.heard(Number(n), text);
    return Number(n);
  }

  /** Reports a fault to those that wait for this flow. */
  fault(what) {
    this.faults.push(`${this.#name}: ${what}`);
    for (const { fail } of this.#waiting) fail(new Error(this.faults[0]));
  }

  #fill() {
    while (this.#running && this.sent - this.received < AHEAD) this.#next();
  }

  #next() {
    this.sent++;
    const text = filler(this.sent);
    this.#send(this.sent, text, `${this.sent} ${text}`);
  }

  #reach(at) {
    if (this.received >= at) return Promise.resolve();
    return new Promise((done, fail) => this.#waiting.push({ at, done: () => void done(undefined), fail }));
  }
}
