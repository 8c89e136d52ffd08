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

/**
 * The URL of this code. Of a classic script, which the bundler marks since it has no
 * import.meta, only the document knows it, and only while it is evaluated.
 */
export const origin = /** @type {any} */ (import.meta).classic
  ? /** @type {any} */ (globalThis).document?.currentScript?.src
  : import.meta.url;

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
    wall: () => Date.now(),
    random: () => Math.random(),
    window: here,
    document: here.document,
    navigator: here.navigator,
    base: here.document?.baseURI ?? here.location?.href,
    module: origin ?? '',
    gateways,
    trace: () => {},
    ...given,
  };
}
