// The platform as it was at import, and as tests replace it.

/** @typedef {import('./types.js').ReseatRuntime} ReseatRuntime */

/** Under this key the installed WebSocket says what it replaced, also to another copy of this module. */
export const INSTALLED = Symbol.for('reseat.installed');

/**
 * The WebSocket there is, beneath what any copy of this module has installed.
 * @returns {any}
 */
export const platformWebSocket = () => {
  const { WebSocket } = /** @type {any} */ (globalThis);
  return WebSocket?.[INSTALLED]?.native ?? WebSocket;
};

/** The WebSocket at import. */
export const NativeWebSocket = platformWebSocket();

/** @param {{ WebSocket?: any }} options @param {any} otherwise */
export function transportOf({ WebSocket }, otherwise) {
  const transport = typeof WebSocket === 'function' ? WebSocket : otherwise;
  if (!transport) throw new TypeError('no WebSocket here: want options.WebSocket');
  return transport;
}

/**
 * The element of the classic script that this is part of: known only while that is
 * evaluated. The bundler says whether there is one.
 */
export const script =
  /** @type {any} */ (import.meta).classic && /** @type {any} */ (globalThis).document?.currentScript;

/** The URL of this code. A classic script has no import.meta. */
export const origin = /** @type {any} */ (import.meta).classic ? script?.src : import.meta.url;

/** Whether the engine is Firefox's; others write "like Gecko". @param {any} navigator */
export const isGecko = (navigator) => /Gecko\/\d/.test(navigator?.userAgent);

/** @type {Set<string>} */
const gateways = new Set();

/**
 * @param {Partial<ReseatRuntime>} [given]
 * @returns {ReseatRuntime}
 */
export function runtimeOf(given) {
  const here = /** @type {any} */ (globalThis);
  return {
    setTimeout: (run, ms) => here.setTimeout(run, ms),
    clearTimeout: (timer) => here.clearTimeout(timer),
    now: () => here.performance.now(),
    wall: Date.now,
    random: Math.random,
    window: here,
    document: here.document,
    navigator: here.navigator,
    base: here.document?.baseURI ?? here.location?.href,
    module: origin,
    gateways,
    fetch: (/** @type {string} */ url, /** @type {object} */ init) => here.fetch(url, init),
    trace: () => {},
    ...given,
  };
}
