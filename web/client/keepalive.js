import { bytesOf, isBytes } from './data.js';

/** @typedef {import('./types.js').Keepalive} Keepalive */

/**
 * Heartbeats by name. Engine.IO, protocol revision 4: ping and pong packets. y-websocket: an
 * awareness update (message type 1, 1 byte long) with no entries, which changes nothing.
 * @type {Readonly<Record<string, object>>}
 */
const KEEPALIVES = Object.freeze({
  'engine.io': { receive: '2', answer: '3', every: 5_000 },
  'y-websocket': { receive: new Uint8Array([1, 1, 0]), every: 5_000 },
});

/** @param {any} given @returns {Keepalive | null} */
export function keepaliveOf(given) {
  if (given === undefined || given === null) return null;
  const { receive, answer, every } = Object((Object.hasOwn(KEEPALIVES, given) && KEEPALIVES[given]) || given);
  const bytes = isBytes(receive);
  if ((bytes || typeof receive === 'string') && (answer === undefined || typeof answer === 'string') && every > 0) {
    return { receive: bytes ? bytesOf(receive) : receive, answer, every };
  }
  throw new TypeError(`keepalive: want ${Object.keys(KEEPALIVES)} or { receive, answer, every }`);
}
