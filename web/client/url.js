import { isToken } from './wire.js';

// URLs and subprotocols, as the WebSockets Standard (section 3.1) reads them.

/** @param {string} message */
export const syntaxError = (message) => new DOMException(message, 'SyntaxError');

/** @param {unknown} given @param {string | undefined} base @returns {string} the absolute URL, ws: or wss: */
export function webSocketURL(given, base) {
  let url;
  try {
    url = new URL(`${given}`, base);
  } catch {
    throw syntaxError(`invalid URL: ${given}`);
  }
  if (url.protocol === 'http:') url.protocol = 'ws:';
  if (url.protocol === 'https:') url.protocol = 'wss:';
  if (url.protocol !== 'ws:' && url.protocol !== 'wss:') throw syntaxError(`no WebSocket URL: ${url}`);
  if (url.href.includes('#')) throw syntaxError(`a URL with a fragment: ${url}`);
  return url.href;
}

/** @param {unknown} given @returns {string[]} */
export function subprotocols(given) {
  if (given === undefined) return [];
  const iterable = typeof given === 'object' && given !== null && Symbol.iterator in given;
  if (typeof given !== 'string' && !iterable) throw syntaxError('subprotocols: want strings');
  const names = typeof given === 'string' ? [given] : [.../** @type {Iterable<any>} */ (given)];
  if (!names.every(isToken)) throw syntaxError('invalid subprotocol');
  if (new Set(names.map((name) => name.toLowerCase())).size < names.length) throw syntaxError('a subprotocol twice');
  return names;
}

/** @param {string} url an absolute URL @returns {string} such as ws://host:8080 */
export const originOf = (url) => new URL(url).origin;

/**
 * The origin, as ws: or wss:, of the gateway that served this code; '' for none.
 * @param {string} module
 */
export function moduleOrigin(module) {
  try {
    const { pathname, origin } = new URL(module);
    return /^\/reseat(\.install)?\.js$/.test(pathname) ? originOf(webSocketURL(origin, undefined)) : '';
  } catch {
    return '';
  }
}
