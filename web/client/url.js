import { isToken } from './wire.js';

// URLs and subprotocols, as the WebSockets Standard (section 3.1) reads them.

/** @param {string} message */
export const syntaxError = (message) => new DOMException(message, 'SyntaxError');

/** @param {unknown} given @param {string | undefined} base @returns {string} the absolute URL, ws: or wss: */
export function webSocketURL(given, base) {
  try {
    const url = new URL(`${given}`, base);
    url.protocol = url.protocol.replace('http', 'ws');
    if (/^wss?:[^#]+$/.test(url.href)) return url.href;
  } catch {
    // It is not a URL.
  }
  throw syntaxError(`no WebSocket URL: ${given}`);
}

/** @param {any} given @returns {string[]} */
export function subprotocols(given = []) {
  const names = typeof given === 'object' && given?.[Symbol.iterator] ? [...given] : [given];
  if (!names.every(isToken) || new Set(names.map((name) => name.toLowerCase())).size < names.length)
    throw syntaxError('invalid protocols');
  return names;
}

/** @param {string} url an absolute URL @returns {string} such as ws://host:8080 */
export const originOf = (url) => new URL(url).origin;

/**
 * The ws: or wss: origin of the gateway that served this code; undefined if none did.
 * @param {string} module
 */
export function moduleOrigin(module) {
  const [, rest] = /^http(s?:\/\/[^/]+)\/reseat(\.install)?\.js($|[?#])/.exec(module) ?? [];
  return rest && `ws${rest}`;
}
