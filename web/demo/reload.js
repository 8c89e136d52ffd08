// @ts-check
// A reload is a goodbye: the session ends, and the new page gets another. What
// the old one had is kept for one look at it. A page without a connection cannot
// say goodbye.

const KEY = 'reseat.demo.left';

/** @typedef {{seat: number, score: number, saidBye: boolean}} Left */

/**
 * Keeps what a page that is left gives up.
 * @param {import('./game.js').Game} game
 */
export function rememberLeaving(game) {
  addEventListener('pagehide', ({ persisted }) => {
    if (persisted || !game.seat) return;
    const { seat, score, phase } = game;
    sessionStorage.setItem(KEY, JSON.stringify({ seat, score, saidBye: phase === 'playing' }));
  });
}

/** What the page before this one gave up, if this one is its reload. @returns {Left | null} */
export function leftBehind() {
  const kept = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  const [entry] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType('navigation'));
  return kept && entry?.type === 'reload' ? JSON.parse(kept) : null;
}
