// A relay in a process of its own, which can stand still: then the kernel answers no SYN, once the queue of
// connections to accept is full, and no byte moves.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Relay } from './relay.js';

const FILE = fileURLToPath(import.meta.url);

if (process.argv[1] === FILE) {
  const [, , host, address] = process.argv;
  const relay = await Relay.start({ after: () => {} }, host, { host: address, backlog: 1 });
  const answer = (/** @type {string} */ text) => /** @type {any} */ (process).send(text);
  process.on('message', () => {
    relay.stall();
    answer('stalled');
  });
  process.on('disconnect', () => process.exit());
  answer(relay.host);
}

/**
 * @param {{after: (run: () => void) => void}} t at whose end it closes
 * @param {string} host host and port of the gateway
 * @param {string} address where it listens
 */
export async function startTunnel(t, host, address) {
  const child = fork(FILE, [host, address]);
  t.after(() => child.kill('SIGKILL'));
  const [own] = await once(child, 'message');
  return {
    host: /** @type {string} */ (own),
    /**
     * Nothing passes until the returned function is called.
     * @param {boolean} dead whether what is connected stays silent then
     */
    async darken(dead) {
      if (dead) {
        child.send('stall');
        await once(child, 'message');
      }
      child.kill('SIGSTOP');
      const { hostname, port } = new URL(`tcp://${own}`);
      const queue = Array.from({ length: 4 }, () => net.connect(Number(port), hostname).on('error', () => {}));
      await pause(100);
      return () => {
        for (const socket of queue) socket.destroy();
        child.kill('SIGCONT');
      };
    },
  };
}
