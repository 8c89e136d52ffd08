import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { sameAsDirect } from './lib/direct.js';
import { openServer } from './lib/server.js';

// A `ws` client that compresses, in front of a server that does not. zlib inflates what the
// gateway sends, and has no more of a window than the client asked for.

const SIZES = [0, 1, 127, 128, 1000, 16_384, 16_385, 65_536, 300_001, 1 << 20];
const REPEATED = randomBytes(350).toString('hex');

/** @param {number} size text that compresses, if its window reaches 700 characters back */
const text = (size) => REPEATED.repeat(Math.ceil(size / REPEATED.length)).slice(0, size);

/** A server that echoes and notes what it gets. */
async function openEcho(t) {
  const server = Object.assign(await openServer(t), { log: null });
  const wss = new WebSocketServer({ server, perMessageDeflate: false });
  wss.on('connection', (ws) => {
    ws.on('message', (data, binary) => {
      server.log.server.push({ binary, data: String(data) });
      ws.send(data, { binary });
    });
  });
  return server;
}

/** Sends messages of every size and kind and wants each back. */
async function visit(server, addr, log, perMessageDeflate) {
  server.log = log;
  const socket = new WebSocket(`ws://${addr}/`, { perMessageDeflate });
  await once(socket, 'open');
  assert.equal(socket.extensions !== '', addr !== server.addr, `agreed on ${socket.extensions}`);
  for (const size of SIZES) {
    for (const data of [text(size), randomBytes(size)]) {
      socket.send(data, { binary: typeof data !== 'string' });
      const [back, binary] = await once(socket, 'message');
      assert.ok(Buffer.from(data).equals(back) && binary === (typeof data !== 'string'), `an echo of ${size} bytes`);
      if (typeof data === 'string') log.client.push({ size, binary });
    }
  }
  for (const part of ['in ', 'three ']) socket.send(part.repeat(100), { fin: false, compress: true });
  socket.ping('between');
  socket.send('frames'.repeat(100), { compress: true });
  const [back] = await once(socket, 'message');
  log.client.push({ parts: String(back) });
  server.log.server.splice(0, server.log.server.length - 1); // noise differs
  socket.close(4001);
  await once(socket, 'close');
  log.client.push({ closed: 4001 });
}

for (const [name, offer] of Object.entries({
  'as it does by itself': {},
  'all of them': { threshold: 0 },
  'within a window of 512 bytes': { threshold: 0, serverMaxWindowBits: 9, clientMaxWindowBits: 9 },
  'within a window of 1 KiB': { threshold: 0, serverMaxWindowBits: 10 },
  'taking nothing over': { threshold: 0, serverNoContextTakeover: true, clientNoContextTakeover: true },
})) {
  test(`a client that compresses its messages, ${name}`, { timeout: 180_000 }, async (t) => {
    const server = await openEcho(t);
    await sameAsDirect(t, server.addr, (addr, log) => visit(server, addr, log, offer), ['--compression', 'on']);
  });
}
