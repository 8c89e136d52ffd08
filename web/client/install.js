import { reseat } from './events.js';
import { INSTALLED, origin, platformWebSocket, runtimeOf } from './runtime.js';
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
export function install({ match, hideOffline, banner, onDetach, onResume, onReplayed, onClose, ...options } = {}) {
  const here = /** @type {any} */ (globalThis);
  const before = Object.getOwnPropertyDescriptor(here, 'WebSocket');
  if (here.WebSocket?.[INSTALLED]) return here.WebSocket[INSTALLED].uninstall;
  const native = typeof options.WebSocket === 'function' ? options.WebSocket : platformWebSocket();
  if (!native) throw new TypeError('no WebSocket here: give one as options.WebSocket');
  const { window, document } = runtimeOf(options.runtime);
  if (hideOffline) window?.addEventListener?.('offline', stop);
  const removeBanner = tellPeople(document, banner);
  const uninstall = () => {
    if (here.WebSocket?.[INSTALLED]?.uninstall !== uninstall) return;
    window?.removeEventListener?.('offline', stop);
    removeBanner();
    ReseatSocket.prototype.constructor = ReseatSocket;
    if (before) Object.defineProperty(here, 'WebSocket', before);
    else delete here.WebSocket;
  };
  const hooks = { detach: onDetach, resume: onResume, replayed: onReplayed, close: onClose };
  const value = replacement(native, accepts(match), { ...options, WebSocket: native }, hooks, { uninstall, native });
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
 * @param {InstallOptions['match']} match
 * @returns {(url: string) => boolean}
 */
function accepts(match) {
  if (match === undefined || match === null) return () => true;
  if (typeof match === 'function') return (url) => Boolean(match(url));
  return (url) => url.search(match) >= 0; // whatever the expression's lastIndex
}

/**
 * The constructor that is installed. A URL that does not match gets a native WebSocket; a
 * class that extends the constructor gets a ReseatSocket that makes no offer.
 *
 * @param {any} native
 * @param {(url: string) => boolean} matches
 * @param {ReseatOptions} defaults
 * @param {Record<string, ((socket: any, detail: any) => void) | undefined>} hooks by event
 * @param {{ uninstall: () => void, native: any }} mark
 */
function replacement(native, matches, defaults, hooks, mark) {
  /** @type {any} */
  const proxy = new Proxy(ReseatSocket, {
    construct(target, args, newTarget) {
      if (args.length === 0) throw new TypeError('no URL');
      const [url, protocols, own] = args;
      const href = webSocketURL(url, runtimeOf(defaults.runtime).base);
      const wanted = matches(href);
      if (!wanted && newTarget === proxy) return protocols === undefined ? new native(url) : new native(url, protocols);
      const options = { ...defaults, ...Object(own), ...(wanted ? {} : { [PLAIN_ONLY]: true }) };
      const socket = Reflect.construct(target, [url, protocols, options], newTarget === proxy ? target : newTarget);
      for (const [type, hook] of Object.entries(hooks)) {
        if (hook) socket.addEventListener(type, (/** @type {any} */ event) => hook(socket, event.detail));
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

/** Hides an event from the listeners that are added later. @param {Event} event */
const stop = (event) => event.stopImmediatePropagation();

/** Scripts that the parser has met and that have run before any module: not async, deferred or for old browsers. */
const RAN = 'script:is(:not([type]),[type*=javascript i]):not([src]:is([async],[defer]),[nomodule])';

/** A classic script of another origin has no base URL of its own. @returns {Promise<typeof import('./page.js')>} */
const importPage = () =>
  /** @type {any} */ (import.meta).classic ? import(new URL('reseat.page.js', origin).href) : import('./page.js');

/**
 * Loads what tells people of it: the banner, and a warning where other code has, or will have,
 * another WebSocket than the installed one.
 * @param {any} document
 * @param {InstallOptions['banner']} banner
 * @returns {() => void} removes the banner
 */
function tellPeople(document, banner) {
  let removed = false;
  /** @type {(() => void) | undefined} */
  let remove;
  /** @param {(page: typeof import('./page.js')) => void} use */
  const load = (use) => void importPage().then(use).catch(console.warn); // a copy of the module may stand alone
  if (/** @type {any} */ (import.meta).classic) {
    // A classic script runs before the scripts below it.
  } else if (!document) {
    if (/** @type {any} */ (globalThis).process?.versions?.node) load(({ warnOfNode }) => warnOfNode());
  } else if (!document.currentScript && document.querySelector?.(RAN)) {
    load(({ warnOfScripts }) => warnOfScripts());
  }
  if (document && banner) load(({ showBanner }) => removed || (remove = showBanner(document, reseat, banner)));
  return () => {
    removed = true;
    remove?.();
  };
}
