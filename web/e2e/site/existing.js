// Code as games have it that know nothing of Reseat.
import { Player } from './player.js';

/** @param {string} url */
export function connect(url) {
  const socket = new WebSocket(url);
  socket.binaryType = 'arraybuffer';
  const handlers = {};
  for (const type of ['open', 'error', 'close']) {
    socket[`on${type}`] = () => (handlers[type] = (handlers[type] ?? 0) + 1);
  }
  return Object.assign(new Player(socket), { handlers });
}
