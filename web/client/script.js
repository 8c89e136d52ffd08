// The entry of /reseat.install.js, a classic script to be put above a bundle. It calls install()
// at once; the attributes of its element are the options.

import { CloseCode } from './closecode.js';
import { reseat } from './events.js';
import { install } from './install.js';
import { script } from './runtime.js';
import { ReseatSocket } from './socket.js';

const set = script?.dataset ?? {};

/** @type {Storage | undefined} */
let storage;
try {
  if (set.storage !== undefined) storage = globalThis.sessionStorage;
} catch (error) {
  console.warn('reseat: no sessionStorage', error); // the browser denies it
}

/** @type {any} */ (globalThis).Reseat ??= { ReseatSocket, install, reseat, CloseCode };
install({
  match: set.match && ((/** @type {string} */ url) => url.includes(set.match)),
  hideOffline: set.hideOffline !== undefined,
  keepalive: set.keepalive,
  banner: set.banner !== undefined && { detached: set.bannerDetached, resumed: set.bannerResumed },
  storage,
});
