import { subprotocols, webSocketURL } from './url.js';

/**
 * The address of an attempt.
 * @typedef {object} Address
 * @property {string} url absolute, ws: or wss:
 * @property {string[]} protocols the application's own
 */

/**
 * Returns a function that gives the address of each attempt. The URL and the subprotocols may be
 * functions, also asynchronous ones, which are called at each attempt: a ticket in the URL may
 * expire in seconds. `hook` (install's option `address`) may replace the address, or its URL alone.
 * Fixed values are checked at once.
 *
 * @param {any} url
 * @param {any} protocols
 * @param {((url: string, protocols: string[]) => any) | undefined} hook
 * @param {string | undefined} base
 * @returns {(() => Address) | (() => Promise<Address>)}
 * @throws SyntaxError (a DOMException)
 */
export function addresses(url, protocols, hook, base) {
  const isAsked = [url, protocols, hook].map((part) => typeof part === 'function');
  const read = (/** @type {any} */ url, /** @type {any} */ protocols) => ({
    url: webSocketURL(url, base),
    protocols: subprotocols(protocols),
  });
  const fixed = read(isAsked[0] ? 'ws://0' : url, isAsked[1] ? [] : protocols);
  if (!isAsked.includes(true)) return () => fixed;
  return async () => {
    const asked = read(isAsked[0] ? await url() : url, isAsked[1] ? await protocols() : protocols);
    if (!isAsked[2]) return asked;
    const given = (await hook?.(asked.url, asked.protocols)) ?? asked;
    return given.protocols ? read(given.url ?? asked.url, given.protocols) : read(given.url ?? given, asked.protocols);
  };
}
