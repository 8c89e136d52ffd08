import { once } from 'node:events';
import { createServer } from 'node:http';

/**
 * An HTTP server on loopback that ends with the test.
 * @param {{after: (run: () => void) => void}} t
 * @param {import('node:http').RequestListener} [listener]
 */
export async function serve(t, listener) {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const host = `127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}`;
  return { server, host, origin: `http://${host}` };
}
