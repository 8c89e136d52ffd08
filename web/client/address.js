import { subprotocols, webSocketURL } from './url.js';

/**
 * Where an attempt connects to.
 * @typedef {object} Address
 * @property {string} url absolute, ws: or wss:
 * @property {string[]} protocols the application's own
 */

/**
 * Returns what names the address of each attempt. A URL, or subprotocols, may be a function, also an
 * asynchronous one, which is asked at each attempt: a ticket in the URL may be valid for seconds
 * only. `hook` (install's option `address`) sees the address that the page asked for and may
 * replace it, whole or its URL. What is fixed is checked at once.
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
