import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { on, once } from 'node:events';
import { test as untimed } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { sameAsDirect } from './lib/direct.js';
import { openServer } from './lib/server.js';

// A `ws` client that knows nothing of Reseat, and a `ws` server that does not compress. zlib
// inflates what the gateway sends, and has no more of a window than the client asked for.

const test = (name, run) => untimed(name, { timeout: 180_000 }, run);

const BURST = 500;
const SIZES = [0, 1, 125, 126, 127, 128, 1000, 16_384, 16_385, 65_535, 65_536, 300_001, 1 << 20];
const NOISE = randomBytes(1 << 20);

/** @param {number} size text that compresses, if its window reaches 700 characters back */
const text = (size) => NOISE.toString('hex', 0, 350).repeat(Math.ceil(size / 700)).slice(0, size);

/** @param {Buffer} data @param {boolean} binary */
const seen = (data, binary) => ({ binary, bytes: data.length, sha256: createHash('sha256').update(data).digest('hex') });

/**
 * A server whose paths say what it does: it echoes, closes, breaks, or refuses. What it
 * sees goes to `server.log`; its last entry of a visit is followed by a `done`.
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
    return wss.handleUpgrade(request, socket, head, (ws) => serve(ws, request, server));
  });
  return server;
}

function serve(ws, { url, headers: { cookie, authorization, 'user-agent': agent } }, server) {
  const log = server.log.server;
  log.push({ url, cookie, authorization, agent, protocol: ws.protocol });
  ws.on('message', (data, binary) => {
    log.push(seen(data, binary));
    if (String(data) === 'close me') close(ws, 4002, 'as you wish');
    else if (String(data) === 'close me without a code') close(ws);
    else if (String(data) === 'drop me') ws.terminate();
    else ws.send(data, { binary });
  });
  ws.on('close', (code, reason) => {
    log.push(end(ws, code, reason));
    server.emit('done');
  });
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
async function visit(server, addr, log, talk, { path = '/', protocols = [], ...options } = {}) {
  server.log = log;
  const headers = { Cookie: 'a=b', Authorization: 'Bearer me', 'User-Agent': 'peer' };
  const socket = new WebSocket(`ws://${addr}${path}`, protocols, { headers, ...options });
  const gone = Promise.all([once(socket, 'close'), once(server, 'done')]);
  socket.on('upgrade', (answer) => log.client.push({ cookies: answer.headers['set-cookie'] }));
  socket.on('message', (data, binary) => log.client.push(seen(data, binary)));
  socket.on('pong', (data) => log.client.push({ pong: String(data) }));
  socket.on('close', (code, reason) => log.client.push(end(socket, code, reason)));
  await once(socket, 'open');
  log.client.push({ protocol: socket.protocol });
  await talk(socket);
  await gone;
}

/** Sends, and waits for the echo. */
async function echoed(socket, data, options) {
  socket.send(data, options);
  await once(socket, 'message');
}

/** Messages of every size and kind. */
async function converse(socket) {
  for (const size of SIZES) {
    await echoed(socket, text(size));
    await echoed(socket, NOISE.subarray(0, size));
  }
  for (const part of ['in ', 'three ']) socket.send(part.repeat(100), { fin: false, compress: true });
  socket.ping('between');
  await echoed(socket, 'frames'.repeat(100), { compress: true });
  await echoed(socket, '\x10hello {}');
  for (let i = 1; i <= BURST; i++) socket.send(`in a burst ${i}`);
  for await (const [data] of on(socket, 'message')) if (String(data) === `in a burst ${BURST}`) break;
  close(socket, 4001, 'enough');
}

for (const [name, perMessageDeflate] of Object.entries({
  'not compressed': false,
  'compressed as the client does by itself': {},
  'all of them compressed': { threshold: 0 },
  'compressed within a window of 512 bytes': { threshold: 0, serverMaxWindowBits: 9, clientMaxWindowBits: 9 },
  'compressed within a window of 1 KiB': { threshold: 0, serverMaxWindowBits: 10 },
  'compressed, taking nothing over': { threshold: 0, serverNoContextTakeover: true, clientNoContextTakeover: true },
})) {
  test(`messages of every size and kind, both ways, ${name}`, async (t) => {
    const server = await openGame(t);
    const options = { path: '/match/7?seat=a%20b', protocols: ['chat.v1', 'chat.v2'], perMessageDeflate };
    await sameAsDirect(t, server.addr, (addr, log) => visit(server, addr, log, async (socket) => {
      assert.equal(socket.extensions !== '', perMessageDeflate !== false && addr !== server.addr, `agreed on "${socket.extensions}"`);
      await converse(socket);
    }, options), perMessageDeflate ? ['--compression', 'on'] : []);
  });
}

for (const [name, finish] of Object.entries({
  'the client closes with a code': (socket) => close(socket, 1000, 'done'),
  'the client closes without a code': (socket) => close(socket),
  'the client drops the connection': (socket) => socket.terminate(),
  'the server closes with a code': (socket) => socket.send('close me'),
  'the server closes without a code': (socket) => socket.send('close me without a code'),
  'the server drops the connection': (socket) => socket.send('drop me'),
})) {
  test(`${name}, and both ends see what they would without a gateway`, async (t) => {
    const server = await openGame(t);
    await sameAsDirect(t, server.addr, (addr, log) => visit(server, addr, log, finish));
  });
}

test("the server's refusal reaches the client", async (t) => {
  const server = await openGame(t);
  await sameAsDirect(t, server.addr, async (addr, log) => {
    const socket = new WebSocket(`ws://${addr}/refused`);
    const [, answer] = await once(socket, 'unexpected-response');
    const body = (await answer.toArray()).join('');
    log.client.push({ status: answer.statusCode, login: answer.headers['www-authenticate'], body });
    log.server.push('no connection');
  });
});
