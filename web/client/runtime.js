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
 * The URL of the classic script that this is part of; undefined in a module. Only while it
 * is evaluated does the document know.
 */
export const script = import.meta.url ? undefined : /** @type {any} */ (globalThis).document?.currentScript?.src;

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
    module: import.meta.url ?? script ?? '',
    gateways,
    trace: () => {},
    ...given,
  };
}
