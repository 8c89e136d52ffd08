import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { WebSocketServer } from 'ws';
import { startGateway } from '../../web/e2e/support/gateway.js';
import { openServer } from './lib/server.js';

// Python's websockets, as a plain client and speaking reseat.v1 by a client written from the
// protocol's page: cut again and again, and nothing lost.

const run = promisify(execFile);
const CLIENT = fileURLToPath(new URL('python/client.py', import.meta.url));
const PYTHON = process.env.PYTHON ?? '/usr/bin/python3';
const MESSAGES = 200;
const CUTS = 12;

/** The same text as in client.py. @param {number} n */
const textOf = (n) => `${n % 7 === 0 ? '\x10' : ''}message ${n} ${'ä'.repeat((n * 37) % 900)}`;

/** Echoes at /plain; elsewhere it sends its own messages and keeps what comes. */
async function openGame(t) {
  const server = await openServer(t);
  const wss = new WebSocketServer({ server });
  const came = [];
  wss.on('connection', (ws, request) => {
    if (request.url === '/plain') {
      ws.on('message', (data, binary) => ws.send(data, { binary }));
      return;
    }
    ws.on('message', (data) => came.push(String(data)));
    let n = 0;
    const timer = setInterval(() => {
      for (let i = 0; i < 5 && n < MESSAGES; i++) ws.send(textOf(++n));
      if (n === MESSAGES) clearInterval(timer);
    }, 5);
    ws.on('close', () => clearInterval(timer));
  });
  return Object.assign(server, { came });
}

const missing = await run(PYTHON, ['-c', 'import websockets']).then(() => false, () => 'Python has no websockets: apt-get install python3-websockets');

test("Python's websockets, a plain client", { skip: missing, timeout: 120_000 }, async (t) => {
  const game = await openGame(t);
  const gateway = await startGateway(t, '--upstream', `ws://${game.addr}`);
  const { stdout } = await run(PYTHON, [CLIENT, 'plain', `ws://${gateway.host}/plain`, '0']);
  assert.equal(stdout, 'OK plain\n');
});

test(`Python's websockets, a resumable client through ${CUTS} cuts`, { skip: missing, timeout: 120_000 }, async (t) => {
  const game = await openGame(t);
  const gateway = await startGateway(t, '--upstream', `ws://${game.addr}`);
  const { stdout } = await run(PYTHON, [CLIENT, 'resumable', `ws://${gateway.host}/game`, String(CUTS)]);
  assert.match(stdout, new RegExp(`^OK ${CUTS + 2} connections, ${MESSAGES} messages each way\\n$`));
  assert.equal(game.handshakes, 1, 'connections to the game server');
  assert.deepEqual(game.came, Array.from({ length: MESSAGES }, (_, i) => textOf(i + 1)));
});
