import * as ReadyState from './readystate.js';
import { ReseatSocket } from './socket.js';

/** @typedef {import('./types.js').UseReseatOptions} UseReseatOptions */
/** @typedef {import('./types.js').ReseatStatus} ReseatStatus */
/** @typedef {{ readonly socket: ReseatSocket | null, readonly status: ReseatStatus }} Watched */

/** The value without a socket. @type {Watched} */
export const NOTHING = Object.freeze({ socket: null, status: 'connecting' });

/**
 * Implements useReseat for every framework: opens a socket, and reports it with its status, at
 * once and after each change.
 *
 * @param {string | URL} url
 * @param {() => UseReseatOptions} options the newest; a change of `onMessage` alone takes effect
 * @param {(watched: Watched) => void} report
 * @returns {() => void} closes the socket; nothing is reported after it
 */
export function watch(url, options, report) {
  const { protocols, onMessage: _, ...rest } = options();
  const socket = new ReseatSocket(url, protocols, rest);
  let over = false;
  const update = () => over || report({ socket, status: statusOf(socket) });
  for (const type of ['open', 'detach', 'resume', 'close']) socket.addEventListener(type, update);
  socket.addEventListener('message', (/** @type {any} */ event) => over || options().onMessage?.(event));
  update();
  return () => {
    over = true;
    socket.close();
  };
}

/**
 * @param {ReseatSocket} socket
 * @returns {ReseatStatus}
 */
function statusOf({ readyState, detached }) {
  if (readyState === ReadyState.OPEN) return detached ? 'detached' : 'open';
  return /** @type {const} */ (['connecting', 'open', 'closing', 'closed'])[readyState];
}
