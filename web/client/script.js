// The entry of /reseat.install.js: a classic script in front of a bundle. It installs at
// once, as the attributes of its own element say.

import { CloseCode } from './closecode.js';
import { reseat } from './events.js';
import { install } from './install.js';
import { script } from './runtime.js';
import { ReseatSocket } from './socket.js';

const { match, hideOffline, keepalive, banner, bannerDetached, bannerResumed, storage } = script?.dataset ?? {};

/** @type {Storage | undefined} */
let tabStorage;
try {
  if (storage !== undefined) tabStorage = globalThis.sessionStorage;
} catch (error) {
  console.warn('reseat: no sessionStorage', error); // the browser denies it
}

/** @type {any} */ (globalThis).Reseat ??= { ReseatSocket, install, reseat, CloseCode };
install({
  match: match && ((/** @type {string} */ url) => url.includes(match)),
  hideOffline: hideOffline !== undefined,
  keepalive,
  banner: banner !== undefined && { detached: bannerDetached, resumed: bannerResumed },
  storage: tabStorage,
});
