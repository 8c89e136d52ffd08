import { reseat } from './events.js';
import { INSTALLED, origin, platformWebSocket, runtimeOf, transportOf } from './runtime.js';
import { PLAIN_ONLY, ReseatSocket } from './socket.js';
import { webSocketURL } from './url.js';

/** @typedef {import('./types.js').ReseatOptions} ReseatOptions */
/** @typedef {import('./types.js').InstallOptions} InstallOptions */

/**
 * Replaces `globalThis.WebSocket`; see reseat.d.ts.
 *
 * @param {InstallOptions & ReseatOptions} [options]
 * @returns {() => void} restores it
 */
export function install(options = {}) {
  const { hideOffline, banner } = options;
  const here = /** @type {any} */ (globalThis);
  const before = Object.getOwnPropertyDescriptor(here, 'WebSocket');
  const installed = () => here.WebSocket?.[INSTALLED]?.uninstall;
  if (installed()) return installed();
  const native = transportOf(options, platformWebSocket());
  const { window, document } = runtimeOf(options.runtime);
  const over = new AbortController();
  const { signal } = over;
  if (hideOffline) window?.addEventListener?.('offline', stop, { signal });
  notify(document, banner, signal);
  const uninstall = () => {
    if (installed() !== uninstall) return;
    over.abort();
    ReseatSocket.prototype.constructor = ReseatSocket;
    if (before) Object.defineProperty(here, 'WebSocket', before);
    else delete here.WebSocket;
  };
  const value = replacement(native, { ...options, WebSocket: native }, { uninstall, native });
  Object.defineProperty(here, 'WebSocket', {
    writable: true,
    configurable: true,
    enumerable: before?.enumerable,
    value,
  });
  ReseatSocket.prototype.constructor = value;
  return uninstall;
}

/**
 * The constructor that is installed. If the URL does not match, it makes a native WebSocket, or for
 * a class that extends it, a ReseatSocket without an offer.
 *
 * @param {any} native
 * @param {any} defaults the options of install()
 * @param {{ uninstall: () => void, native: any }} mark
 */
function replacement(native, defaults, mark) {
  const { match } = defaults;
  /** @type {any} */
  const proxy = new Proxy(ReseatSocket, {
    construct(target, args, newTarget) {
      if (args.length === 0) throw new TypeError('no URL');
      const [url, protocols, own] = args;
      // Only code written for ReseatSocket passes a function.
      const href = typeof url === 'function' || webSocketURL(url, runtimeOf(defaults.runtime).base);
      // search() does not depend on the expression's lastIndex.
      const wanted = !match || href === true || (typeof match === 'function' ? match(href) : href.search(match) >= 0);
      if (!wanted && newTarget === proxy) return new native(url, protocols);
      const options = { ...defaults, ...Object(own), [PLAIN_ONLY]: !wanted };
      const socket = Reflect.construct(target, [url, protocols, options], newTarget === proxy ? target : newTarget);
      for (const name of ['Detach', 'Resume', 'Replayed', 'Skip', 'Upstream', 'Close']) {
        const hook = defaults[`on${name}`];
        if (hook) socket.addEventListener(name.toLowerCase(), (/** @type {any} */ event) => hook(socket, event.detail));
      }
      return socket;
    },
    get(target, key) {
      if (key === INSTALLED) return mark;
      if (key === 'name') return 'WebSocket';
      if (key === Symbol.hasInstance)
        return (/** @type {any} */ value) => value instanceof target || value instanceof native;
      return Reflect.get(target, key);
    },
  });
  return proxy;
}

/** Hides an event from listeners that were added later. @param {Event} event */
const stop = (event) => event.stopImmediatePropagation();

/** Scripts that ran before any module: not async, deferred or for old browsers. */
const RAN = 'script:is(:not([type]),[type*=javascript i]):not([src]:is([async],[defer]),[nomodule])';

/**
 * Loads the banner, and the warning for code that uses another WebSocket than the installed one.
 * @param {any} document
 * @param {InstallOptions['banner']} banner
 * @param {AbortSignal} signal removes the banner
 */
async function notify(document, banner, signal) {
  // A classic script runs before the scripts below it.
  const warn =
    !(/** @type {any} */ (import.meta).classic) &&
    (document
      ? !document.currentScript && document.querySelector?.(RAN)
      : /** @type {any} */ (globalThis).process?.versions?.node);
  if (!warn && !(document && banner)) return;
  try {
    // A classic script of another origin has no base URL of its own.
    const page = /** @type {any} */ (import.meta).classic
      ? import(new URL('reseat.page.js', origin).href)
      : import('./page.js');
    (await page).notify(document, reseat, banner, signal, warn);
  } catch (error) {
    console.warn(error); // a copy of this code may stand alone
  }
}
