// A game server's HTTP server, on loopback.

import { once } from 'node:events';
import { createServer } from 'node:http';

/**
 * Opens an HTTP server, which counts the WebSocket handshakes that reach it, and breaks
 * all its connections at the end of the test.
 *
 * @param {import('node:test').TestContext} t
 * @param {import('node:http').RequestListener} [onRequest]
 * @returns {Promise<import('node:http').Server & { addr: string, handshakes: number }>}
 */
export async function openServer(t, onRequest) {
  const server = Object.assign(createServer(onRequest), { addr: '', handshakes: 0 });
  server.on('upgrade', () => server.handshakes++);
  const sockets = new Set();
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  server.addr = `127.0.0.1:${server.address().port}`;
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return server;
}
