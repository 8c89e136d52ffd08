// @ts-check
// A reload of the page, with and without storage. With storage the next page of the tab continues
// the session. Without, the page says goodbye, and the next one begins a new session. The counts of
// the old page are kept to be compared.

const LEFT = 'reseat.demo.left';
const NAME = 'reseat.demo.name';

/** @typedef {import('./game.js').Game} Game */
/** @typedef {{seat: number, score: number}} Had */
/** @typedef {{reseat: Had, plain: Had, stored: boolean, saidBye: boolean, counts: import('./game.js').Carried}} Left */

/**
 * The option `storage` of ReseatSocket: the tab's sessionStorage, which can be written only once the
 * page is asked to keep its session. If it cannot be written, the socket says goodbye.
 */
export class ReloadStore {
  keeps = false;

  /** @param {string} key */
  getItem(key) {
    return sessionStorage.getItem(key);
  }

  /** @param {string} key */
  removeItem(key) {
    sessionStorage.removeItem(key);
  }

  /** @param {string} key @param {string} value */
  setItem(key, value) {
    if (!this.keeps) throw new Error('the session is not to be kept');
    sessionStorage.setItem(key, value);
  }
}

/**
 * Keeps the state of a page that is left, for the next one.
 * @param {Game} reseat
 * @param {Game} plain
 * @param {ReloadStore} store
 */
export function rememberLeaving(reseat, plain, store) {
  addEventListener('pagehide', ({ persisted }) => {
    if (persisted || !reseat.seat) return;
    const had = ({ seat, score }) => ({ seat, score });
    /** @type {Left} */
    const left = {
      reseat: had(reseat),
      plain: had(plain),
      stored: store.keeps,
      saidBye: reseat.phase === 'playing',
      counts: reseat.counts,
    };
    sessionStorage.setItem(LEFT, JSON.stringify(left));
  });
}

/** What the page before this one had, if this one is its reload. @returns {Left | null} */
export function leftBehind() {
  const kept = sessionStorage.getItem(LEFT);
  sessionStorage.removeItem(LEFT);
  const [entry] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType('navigation'));
  return kept && entry?.type === 'reload' ? JSON.parse(kept) : null;
}

/**
 * The player's name, the same for all pages of the tab: a session is kept under its URL, and
 * the name is part of that.
 * @param {string[]} names
 */
export function nameOfTab(names) {
  const name = sessionStorage.getItem(NAME) ?? names[Math.floor(Math.random() * names.length)];
  sessionStorage.setItem(NAME, name);
  return name;
}
