// The platform at import, which tests replace.

/** @typedef {import('./types.js').ReseatRuntime} ReseatRuntime */

/** The key under which the installed WebSocket has the one that it replaced, also for another copy of this module. */
export const INSTALLED = Symbol.for('reseat.installed');

/**
 * The WebSocket of the platform, even if a copy of this module has replaced it.
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
  if (!transport) throw new TypeError('no WebSocket here');
  return transport;
}

/**
 * The element of the classic script that this code is part of, which is known only while the script
 * is evaluated. The bundler sets import.meta.classic.
 */
export const script =
  /** @type {any} */ (import.meta).classic && /** @type {any} */ (globalThis).document?.currentScript;

/** The URL of this code. A classic script has no import.meta. */
export const origin = /** @type {any} */ (import.meta).classic ? script?.src : import.meta.url;

/** Whether the browser is Firefox; others write "like Gecko". @param {any} navigator */
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
