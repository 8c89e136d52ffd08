// What the ReseatSockets of a page do, seen without a word to the library that uses them.

/** Records every event and every send of every ReseatSocket. */
export class Tap {
  events = []; // standard ones other than `message`, in order
  sockets = new Set();
  came = new Map(); // data of `message` events, by socket
  went = new Map(); // and of sends
  codes = []; // and reasons of `close` events
  resumes = 0;
  detaches = 0;
  #waiting = [];

  /** Watches a class, before its first use. */
  attach(ReseatSocket) {
    const tap = this;
    const { dispatchEvent, send } = ReseatSocket.prototype;
    ReseatSocket.prototype.dispatchEvent = function (event) {
      const result = dispatchEvent.call(this, event);
      tap.#note(this, event);
      return result;
    };
    ReseatSocket.prototype.send = function (data) {
      list(tap.went, this).push(typeof data === 'string' ? data : Buffer.from(data));
      return send.call(this, data);
    };
  }

  /** Whether every socket has its connection. */
  get attached() {
    return [...this.sockets].every((socket) => !socket.detached);
  }

  /** Whether every socket is closed. */
  get closed() {
    return [...this.sockets].every((socket) => socket.readyState === socket.CLOSED);
  }

  /** Resolves when that is so, which is looked at after each event. */
  until(when) {
    if (when()) return Promise.resolve();
    return new Promise((done) => this.#waiting.push({ when, done: () => done(undefined) }));
  }

  #note(socket, event) {
    this.sockets.add(socket);
    if (event.type === 'close') this.codes.push(`${event.code} ${event.reason}`.trim());
    if (event.type === 'message') list(this.came, socket).push(typeof event.data === 'string' ? event.data : Buffer.from(event.data));
    else if (event.type === 'detach') this.detaches++;
    else if (event.type === 'resume') this.resumes++;
    else if (event.type !== 'replayed') this.events.push(event.type);
    const ready = this.#waiting.filter(({ when }) => when());
    this.#waiting = this.#waiting.filter((w) => !ready.includes(w));
    for (const { done } of ready) done();
  }
}

function list(map, key) {
  if (!map.has(key)) map.set(key, []);
  return map.get(key);
}
