// What a page can see of WebSocket. Each case returns a log, which must be the same for a ReseatSocket as for the
// native one, of the same engine and towards the same server.

/** @param {() => unknown} run */
function thrown(run) {
  try {
    const value = run();
    return value instanceof WebSocket
      ? `made ${value.url.replace(location.host, 'here')}`
      : `no error: ${String(value)}`;
  } catch (error) {
    return `${error instanceof DOMException ? 'DOMException ' : ''}${error.name}`;
  }
}

/** @param {EventTarget} socket @param {string} type @returns {Promise<any>} */
const next = (socket, type) => new Promise((done) => socket.addEventListener(type, done, { once: true }));

/** @param {any} data */
async function read(data) {
  if (typeof data === 'string') return data.length > 100 ? `text of ${data.length}` : `text ${data}`;
  const bytes = new Uint8Array(data instanceof Blob ? await data.arrayBuffer() : data);
  return `${data.constructor.name} ${bytes.length > 100 ? `of ${bytes.length}` : bytes.join()}`;
}

/** A socket with the log of its events. @param {string} url @param {any} [protocols] */
function logged(url, protocols) {
  const socket = protocols === undefined ? new WebSocket(url) : new WebSocket(url, protocols);
  /** @type {any[]} */
  const log = [];
  for (const type of ['open', 'message', 'error', 'close'])
    socket.addEventListener(type, (/** @type {any} */ { code, reason, wasClean }) =>
      log.push([type, socket.readyState, code, reason, wasClean, socket.protocol, socket.bufferedAmount]),
    );
  return { socket, log };
}

/** @param {string} url @param {any} [protocols] */
async function opened(url, protocols) {
  const it = logged(url, protocols);
  await next(it.socket, 'open');
  return it;
}

/** Closes, unless it is closed, and returns the log. @param {{socket: WebSocket, log: any[]}} it */
async function ended({ socket, log }) {
  const over = socket.readyState === WebSocket.CLOSED || next(socket, 'close');
  socket.close();
  await over;
  return log;
}

/** Sends, and returns what comes back. @param {WebSocket} socket @param {any} data */
async function echo(socket, data) {
  const answer = next(socket, 'message');
  socket.send(data);
  return read((await answer).data);
}

const closing =
  (/** @type {any[]} */ ...how) =>
  async (/** @type {string} */ at) => {
    const it = await opened(`${at}/echo`);
    const result = thrown(() => it.socket.close(...how));
    const state = it.socket.readyState;
    if (state === WebSocket.CLOSING) await next(it.socket, 'close');
    else await ended(it);
    return [result, state, it.log];
  };

const offers =
  (/** @type {any[]} */ ...offered) =>
  (/** @type {string} */ at) =>
    offered.map((protocols) => {
      let made;
      const result = thrown(() => (made = new WebSocket(`${at}/protocol/a`, protocols)));
      made?.close();
      return [String(protocols), result];
    });

/** The server closes, by this path; the log. @param {string[]} paths */
const served =
  (...paths) =>
  async (/** @type {string} */ at) => {
    const logs = [];
    for (const path of paths) {
      const it = await opened(`${at}${path}`);
      await next(it.socket, 'close');
      logs.push(it.log);
    }
    return logs;
  };

const MEMBERS =
  'url readyState bufferedAmount extensions protocol binaryType onopen onerror onclose onmessage close send CONNECTING OPEN CLOSING CLOSED';

const BAD_CODES = [
  0,
  1,
  500,
  999,
  1001,
  1002,
  1005,
  1006,
  1011,
  2999,
  5000,
  65_535,
  66_536,
  -1,
  NaN,
  null,
  'x',
  {},
  true,
  Infinity,
];

const THROWS = {
  toString: () => {
    throw new RangeError('x');
  },
};

/** By name; `at` is the server's address. @type {Record<string, (at: string) => any>} */
export const cases = {
  'constructor: how URLs are read': (at) =>
    [
      `${at}/a b?c d`,
      `${at.replace('ws', 'http')}/echo`,
      `${at.toUpperCase().replace('WS', 'Ws')}/x/../y`,
      `${at}`,
      `${at}?q`,
      '/echo',
      'sub/echo?x=1',
    ].map((url) => {
      const socket = new WebSocket(url);
      socket.close();
      return socket.url.replace(location.host, 'here');
    }),
  'constructor: subprotocols': offers(
    ...[[], '', 'a', ['a', 'a'], ['a b'], 'a,b', 'a/b', '\u00e9', '\u007f', 'a\t', '"a"', '{', {}, ['a', '']],
    new Set(['a', 'b']),
  ),
  'constructor: subprotocols that differ in case': offers(['a', 'A']),
  'constructor: what is neither text nor a list of text': offers(null, 7, [['a']], [undefined]),
  'constructor: arguments': () => [
    thrown(() => new WebSocket()),
    thrown(() => WebSocket('ws://127.0.0.1/')),
    thrown(() => new WebSocket(Symbol('x'))),
    thrown(() => new WebSocket(THROWS)),
    WebSocket.name,
    WebSocket.length,
    typeof WebSocket,
  ],
  'the interface': (at) => {
    const socket = new WebSocket(`${at}/echo`);
    const described = MEMBERS.split(' ').map((name) => {
      const of = (/** @type {object} */ holder) => {
        const found = Object.getOwnPropertyDescriptor(holder, name);
        if (!found) return found;
        const { value, get, set, enumerable, configurable, writable } = found;
        return [typeof value, typeof get, typeof set, enumerable, configurable, writable, value?.length];
      };
      return [name, of(socket), of(WebSocket.prototype), of(WebSocket), name in socket];
    });
    socket.close();
    return [
      described,
      Object.prototype.toString.call(socket),
      socket instanceof WebSocket,
      socket instanceof EventTarget,
      socket.constructor === WebSocket,
      Object.getPrototypeOf(WebSocket.prototype) === EventTarget.prototype,
      [WebSocket.CONNECTING, WebSocket.OPEN, WebSocket.CLOSING, WebSocket.CLOSED],
    ];
  },
  'read-only members': async (at) => {
    const { socket, log } = logged(`${at}/echo`);
    const names = ['url', 'readyState', 'bufferedAmount', 'extensions', 'protocol', 'CONNECTING', 'OPEN'];
    const results = names.map((name) => [
      name,
      thrown(() => (socket[name] = 7)),
      String(socket[name]).replace(location.host, 'here').replace(at, 'at'),
    ]);
    await next(socket, 'open');
    return [results, await ended({ socket, log })];
  },
  'close while connecting': async (at) => {
    const it = logged(`${at}/echo`);
    it.socket.close(3000, 'early');
    const state = it.socket.readyState;
    it.socket.close();
    await next(it.socket, 'close');
    return [state, it.log];
  },
  'handler attributes': async (at) => {
    const { socket } = logged(`${at}/echo`);
    /** @type {any[]} */
    const log = [];
    for (const value of [1, 'x', undefined, null, {}, () => {}, Symbol.iterator]) {
      socket.onmessage = value;
      log.push(socket.onmessage === value, typeof socket.onmessage);
    }
    socket.addEventListener('open', () => log.push('first'));
    socket.onopen = function (event) {
      log.push('attribute', this === socket, event.type);
    };
    socket.addEventListener('open', () => log.push('last'));
    socket.onopen = () => log.push('replaced, in the same place');
    socket.onmessage = { handleEvent: () => log.push('never called') };
    await next(socket, 'open');
    await echo(socket, 'x');
    socket.onopen = null;
    log.push(socket.onopen);
    await ended({ socket, log: [] });
    return log;
  },
  events: async (at) => {
    /** @type {any[]} */
    const log = [];
    const socket = new WebSocket(`${at}/echo`);
    for (const type of ['open', 'message', 'close'])
      socket.addEventListener(type, (/** @type {any} */ event) =>
        log.push([
          [type, Object.prototype.toString.call(event), event.constructor.name, typeof event.data],
          [event.target === socket, event.currentTarget === socket, event.eventPhase, event.defaultPrevented],
          [event.bubbles, event.cancelable, event.composed, event.lastEventId, event.source, event.ports?.length],
          String(event.origin).replace(at.replace(/^http/, 'ws'), 'at'),
        ]),
      );
    await next(socket, 'open');
    await echo(socket, 'x');
    await ended({ socket, log: [] });
    return log;
  },
  text: async (at) => {
    const { socket, log } = await opened(`${at}/echo`);
    const out = [];
    const short = ['', 'x', '\u20ac\u{1f600}', '\ud800', 'a\ud800b\udc00', '\x00', '\x10', '\x10\x10x', '\ufeffbom'];
    for (const data of [...short, 'x'.repeat(70_000)]) out.push(await echo(socket, data));
    return [out.map((text) => JSON.stringify(text)), await ended({ socket, log })];
  },
  bytes: async (at) => {
    const { socket, log } = await opened(`${at}/echo`);
    const frame = document.body.appendChild(document.createElement('iframe'));
    const other = /** @type {any} */ (frame.contentWindow);
    const bytes = new Uint8Array([1, 2, 3, 4, 5, 6, 7, 8]);
    const out = [];
    for (const type of ['arraybuffer', 'blob']) {
      socket.binaryType = type;
      for (const data of [
        ...[bytes, bytes.buffer, bytes.subarray(2, 5), new DataView(bytes.buffer, 1, 2)],
        ...[new Uint16Array(bytes.buffer, 2, 1), new Float64Array(1), new Uint8ClampedArray(2)],
        ...[new ArrayBuffer(0), new Uint8Array(70_000), new Blob(['blob']), new Blob([]), new File(['file'], 'name')],
        ...[new other.Uint8Array([9]), new other.ArrayBuffer(2), new other.Blob(['other'])],
      ])
        out.push(await echo(socket, data));
    }
    frame.remove();
    return [out, await ended({ socket, log })];
  },
  'the order of Blobs, text and bytes': async (at) => {
    const { socket, log } = await opened(`${at}/echo`);
    socket.binaryType = 'arraybuffer';
    /** @type {Promise<string>[]} */
    const got = [];
    const all = new Promise((done) =>
      socket.addEventListener('message', ({ data }) => got.push(read(data)) === 6 && done(0)),
    );
    socket.send('1');
    socket.send(new Blob(['2'.repeat(50_000)]));
    socket.send('3');
    socket.send(new Uint8Array([4]));
    socket.send(new Blob(['5']));
    socket.send('6');
    await all;
    return [await Promise.all(got), (await ended({ socket, log })).length];
  },
  bufferedAmount: async (at) => {
    const { socket, log } = await opened(`${at}/echo`);
    const out = [socket.bufferedAmount];
    for (const data of ['four', '\u20ac', new ArrayBuffer(10), new Blob(['xy'])]) {
      socket.send(data);
      out.push(socket.bufferedAmount);
    }
    await ended({ socket, log });
    return [out, log.filter(([type]) => type !== 'message').map(([type, state]) => [type, state])];
  },
  'bufferedAmount after close': async (at) => {
    const { socket } = await opened(`${at}/echo`);
    socket.close();
    socket.send('late');
    const out = [socket.bufferedAmount];
    await next(socket, 'close');
    socket.send('after');
    return [...out, socket.bufferedAmount];
  },
  'close: no arguments': closing(),
  'close: 1000': closing(1000),
  'close: 1000 and a reason': closing(1000, 'reason'),
  'close: 3000 and a reason': closing(3000, '\u20ac'.repeat(41)),
  'close: 4999': closing(4999, ''),
  'close: undefined': closing(undefined),
  'close: undefined and a reason': closing(undefined, 'reason'),
  'close: a string': closing('3001', 7),
  'close: a fraction': closing(3000.5),
  'close: an unpaired surrogate': closing(1000, '\ud807'),
  'close: too long a reason': closing(1000, 'x'.repeat(124)),
  'close: too long a reason in bytes': closing(1000, '\u20ac'.repeat(42)),
  'close: bad codes': async (at) => {
    const it = await opened(`${at}/echo`);
    const out = BAD_CODES.map((code) => [
      String(code),
      thrown(() => it.socket.close(code)),
      thrown(() => it.socket.close(code, 'x'.repeat(124))),
      it.socket.readyState,
    ]);
    return [out, await ended(it)];
  },
  'close: in the handler of open': async (at) => {
    const it = logged(`${at}/echo`);
    it.socket.onopen = () => it.socket.close(3001, 'at once');
    await next(it.socket, 'close');
    return it.log;
  },
  'sent before close': async (at) => {
    const id = Math.random();
    const it = await opened(`${at}/count/${id}`);
    for (let i = 0; i < 20; i++) it.socket.send('x');
    it.socket.close(3001);
    await next(it.socket, 'close');
    const other = await opened(`${at}/counted/${id}`);
    const { data } = await next(other.socket, 'message');
    return [data, it.log.length, (await ended(other)).length];
  },
  'close by the server': served(
    '/close/1000/bye',
    '/close/3001/own%20words',
    '/close',
    '/close/1001/x',
    '/close/1011/x',
  ),
  'messages before the close of the server': served('/talk'),
  'subprotocol: chosen': async (at) => ended(await opened(`${at}/protocol/b`, ['a', 'b', 'c'])),
  'subprotocol: one, as a string': async (at) => ended(await opened(`${at}/protocol/a`, 'a')),
  'subprotocol: none offered': async (at) => ended(await opened(`${at}/protocol/`)),
  'subprotocol: none chosen': async (at) => {
    const it = logged(`${at}/protocol/`, ['a', 'b']);
    await Promise.race([next(it.socket, 'open'), next(it.socket, 'close')]);
    return ended(it);
  },
  'nobody there': async () => {
    const it = logged(`ws://${new URL(location.href).searchParams.get('nobody')}/`);
    await next(it.socket, 'close');
    return it.log;
  },
  'a listener that throws': async (at) => {
    const { socket, log } = await opened(`${at}/echo`);
    const heard = (/** @type {Event} */ event) => event.preventDefault();
    addEventListener('error', heard);
    socket.onmessage = () => {
      throw new Error('on purpose');
    };
    const out = [await echo(socket, '1'), await echo(socket, '2')];
    removeEventListener('error', heard);
    return [out, await ended({ socket, log })];
  },
};

/** Runs all. @param {string} at @returns {Promise<Record<string, any>>} */
export async function runCases(at) {
  /** @type {Record<string, any>} */
  const results = {};
  for (const [name, run] of Object.entries(cases)) {
    const late = new Promise((done) => setTimeout(() => done('nothing within 20 s'), 20_000));
    results[name] = await Promise.race([
      Promise.resolve()
        .then(() => run(at))
        .catch((error) => `threw ${error}`),
      late,
    ]);
  }
  return results;
}
