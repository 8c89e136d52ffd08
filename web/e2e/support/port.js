import net from 'node:net';

/** A port of 127.0.0.1 where nobody listens. @returns {Promise<number>} */
export function freePort() {
  return new Promise((done) => {
    const server = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = /** @type {net.AddressInfo} */ (server.address());
      server.close(() => done(port));
    });
  });
}
