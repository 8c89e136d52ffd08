// A game server's HTTP server, on loopback.

import { once } from 'node:events';
import { createServer } from 'node:http';

/**
 * Opens an HTTP server that counts the WebSocket handshakes that reach it, and breaks all its
 * connections at the end of the test. `listen` is for a library that binds the server by itself.
 */
export async function openServer(t, listen = (server) => server.listen(0, '127.0.0.1')) {
  const server = Object.assign(createServer(), { addr: '', handshakes: 0 });
  server.on('upgrade', () => server.handshakes++);
  const sockets = new Set();
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  const listening = once(server, 'listening');
  await listen(server);
  await listening;
  server.addr = `127.0.0.1:${server.address().port}`;
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return server;
}
