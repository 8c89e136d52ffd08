import { on, once } from 'node:events';
import { test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { sameAsDirect } from './lib/direct.js';
import { openServer } from './lib/server.js';

// A `ws` client that knows nothing of Reseat, and a `ws` server.

const BURST = 500;
const SIZES = [0, 1, 125, 126, 127, 65_535, 65_536, 300_001, 1 << 20];

/** @param {string | Buffer} data @param {boolean} binary */
const seen = (data, binary) => ({ binary, bytes: data.length, text: String(data).slice(0, 20) });

/**
 * A server whose paths say what it does: it echoes, closes, breaks, or refuses. What it
 * sees goes to `server.log`.
 */
async function openGame(t) {
  const server = Object.assign(await openServer(t), { log: { server: [] } });
  const options = { noServer: true, handleProtocols: (names) => (names.has('chat.v2') ? 'chat.v2' : false) };
  const wss = new WebSocketServer(options);
  wss.on('headers', (headers) => headers.push('Set-Cookie: seat=7; HttpOnly'));
  server.on('upgrade', (request, socket, head) => {
    if (request.url === '/refused') {
      return socket.end('HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 8\r\nConnection: close\r\n\r\nwho goes');
    }
    return wss.handleUpgrade(request, socket, head, (ws) => serve(ws, request, server.log.server));
  });
  return server;
}

/** @param {WebSocket} ws @param {import('node:http').IncomingMessage} request @param {any[]} log */
function serve(ws, request, log) {
  const { cookie, authorization, 'user-agent': agent } = request.headers;
  log.push({ url: request.url, cookie, authorization, agent, protocol: ws.protocol });
  ws.on('message', (data, binary) => {
    log.push(seen(data, binary));
    if (String(data) === 'close me') close(ws, 4002, 'as you wish');
    else if (String(data) === 'close me without a code') close(ws);
    else if (String(data) === 'drop me') ws.terminate();
    else ws.send(data, { binary });
  });
  ws.on('close', (code, reason) => log.push(end(ws, code, reason)));
}

/**
 * How a connection ended for one side. Its own reason is the other side's to repeat, and
 * few do: it is left out.
 */
const end = (ws, code, reason) => ({ closed: code, reason: ws.closes ? 'mine' : String(reason) });

/** Closes, and remembers who did. */
function close(ws, code, reason) {
  ws.closes = true;
  ws.close(code, reason);
}

/** Connects, notes what the client sees, and has `talk` go on. */
async function visit(server, addr, log, path, protocols, talk) {
  server.log = log;
  const socket = new WebSocket(`ws://${addr}${path}`, protocols, { headers: { Cookie: 'a=b', Authorization: 'Bearer me', 'User-Agent': 'peer' } });
  const gone = Promise.all([once(socket, 'close'), new Promise((done) => whenServerIsDone(server, done))]);
  socket.on('upgrade', (answer) => log.client.push({ cookies: answer.headers['set-cookie'] }));
  socket.on('message', (data, binary) => log.client.push(seen(data, binary)));
  socket.on('pong', (data) => log.client.push({ pong: String(data) }));
  socket.on('close', (code, reason) => log.client.push(end(socket, code, reason)));
  await once(socket, 'open');
  log.client.push({ protocol: socket.protocol });
  await talk(socket);
  await gone;
}

/** The server's own close event has come: with it its log of this visit is whole. */
function whenServerIsDone(server, done) {
  const { push } = server.log.server;
  server.log.server.push = function (entry) {
    push.call(this, entry);
    if (entry.closed) {
      delete this.push;
      done();
    }
  };
}

/** Sends, and waits for the echo. */
async function echoed(socket, data, options) {
  socket.send(data, options);
  await once(socket, 'message');
}

test('messages of every size and kind, both ways', { timeout: 180_000 }, async (t) => {
  const server = await openGame(t);
  await sameAsDirect(t, server.addr, (addr, log) => visit(server, addr, log, '/match/7?seat=a%20b', ['chat.v1', 'chat.v2'], async (socket) => {
    for (const size of SIZES) {
      await echoed(socket, 'x'.repeat(size));
      await echoed(socket, Buffer.alloc(size, size));
    }
    for (const part of ['in ', 'three ']) socket.send(part, { fin: false });
    await echoed(socket, 'frames');
    await echoed(socket, '\x10hello {}');
    socket.ping('are you there');
    await once(socket, 'pong');
    for (let i = 1; i < BURST; i++) socket.send(`in a burst ${i}`);
    socket.send(`in a burst ${BURST}`);
    for await (const [data] of on(socket, 'message')) if (String(data) === `in a burst ${BURST}`) break;
    close(socket, 4001, 'enough');
  }));
});

test('each way to end a connection', { timeout: 180_000 }, async (t) => {
  const server = await openGame(t);
  const ends = {
    'client, with a code': (socket) => close(socket, 1000, 'done'),
    'client, without': (socket) => close(socket),
    'client, by a drop': (socket) => socket.terminate(),
    'server, with a code': (socket) => socket.send('close me'),
    'server, without': (socket) => socket.send('close me without a code'),
    'server, by a drop': (socket) => socket.send('drop me'),
  };
  for (const [name, finish] of Object.entries(ends)) {
    await t.test(name, (t) => sameAsDirect(t, server.addr, (addr, log) => visit(server, addr, log, '/', [], finish)));
  }
});

test("the server's refusal reaches the client", { timeout: 180_000 }, async (t) => {
  const server = await openGame(t);
  await sameAsDirect(t, server.addr, async (addr, log) => {
    const socket = new WebSocket(`ws://${addr}/refused`);
    const [, answer] = await once(socket, 'unexpected-response');
    const body = (await answer.toArray()).join('');
    log.client.push({ status: answer.statusCode, login: answer.headers['www-authenticate'], body });
    log.server.push('no connection');
  });
});
