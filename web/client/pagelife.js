import { isGecko } from './runtime.js';

/** @typedef {import('./types.js').ReseatRuntime} ReseatRuntime */

/**
 * Listens to all that the life of a page means to a connection.
 * @param {ReseatRuntime} runtime
 * @param {AbortSignal} signal stops listening
 * @param {(event: any) => void} heard
 */
export function watchPage({ window, document, navigator }, signal, heard) {
  // Firefox closes a page's sockets before `pagehide`, and keeps no page with one in the back/forward cache.
  if (isGecko(navigator)) window?.addEventListener?.('beforeunload', heard, { signal });
  for (const type of ['online', 'pageshow', 'pagehide']) window?.addEventListener?.(type, heard, { signal });
  for (const type of ['visibilitychange', 'freeze', 'resume']) document?.addEventListener?.(type, heard, { signal });
}
