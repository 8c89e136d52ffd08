/** @typedef {import('./types.js').ReseatRuntime} ReseatRuntime */

/**
 * Listens to all that the life of a page means to a connection.
 * @param {ReseatRuntime} runtime
 * @param {(event: any) => void} heard
 * @returns {() => void} stops listening
 */
export function watchPage({ window, document }, heard) {
  /** @param {'addEventListener' | 'removeEventListener'} change */
  const all = (change) => {
    for (const type of ['online', 'pageshow', 'pagehide']) window?.[change]?.(type, heard);
    for (const type of ['visibilitychange', 'freeze', 'resume']) document?.[change]?.(type, heard);
  };
  all('addEventListener');
  return () => all('removeEventListener');
}
