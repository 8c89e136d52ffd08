// @ts-check
// Which rows of a long table are rendered.

/** The max number of rows: browsers limit the height of an element. */
export const MOST_ROWS = 200_000;
/** The same for a cluster: its overviews have no more. */
const MOST_OF_CLUSTER = 5000;
/** Rows that are rendered above and below the visible ones. */
const MARGIN = 8;
/** Rows that are requested above and below the rendered ones. */
const AHEAD = 30;
/** The max number of rows in an answer. */
const MOST_ASKED = 200;

/** @typedef {{first: number, end: number}} Span rows from first up to end, which is not one of them */

/** How many rows can be scrolled to. @param {{nodes?: object[]} | null} overview */
export function reach(overview) {
  return overview?.nodes ? MOST_OF_CLUSTER : MOST_ROWS;
}

/**
 * The rows to render.
 * @param {{top: number, height: number, row: number, total: number}} of how far it is scrolled, heights in px
 * @returns {Span}
 */
export function drawn({ top, height, row, total }) {
  const rows = Math.min(total, MOST_ROWS);
  const first = Math.floor(Math.max(0, top) / row) - MARGIN;
  const end = Math.ceil((Math.max(0, top) + height) / row) + MARGIN;
  return clamp(first, end, rows);
}

/** The rows to ask for, so that those that are drawn have neighbours. @param {Span} span */
export function asked({ first, end }) {
  const offset = Math.max(0, first - AHEAD);
  return { offset, limit: Math.min(MOST_ASKED, Math.max(end + AHEAD - offset, 2 * AHEAD)) };
}

/** Whether rows from offset on, `length` of them, hold all that is drawn. @param {Span} span @param {number} offset @param {number} length */
export function holds({ first, end }, offset, length) {
  return first >= end || (first >= offset && end <= offset + length);
}

/**
 * How far to scroll until a row is visible: as little as possible.
 * @param {number} at the row
 * @param {{top: number, height: number, row: number}} of
 */
export function scrollTo(at, { top, height, row }) {
  if (at * row < top) return at * row;
  if ((at + 1) * row > top + height) return (at + 1) * row - height;
  return top;
}

/**
 * The row that a key selects, or -1 for other keys.
 * @param {string} key
 * @param {number} from -1 for none
 * @param {{page: number, total: number}} of rows that are seen at once, and all
 */
export function step(key, from, { page, total }) {
  const last = Math.min(total, MOST_ROWS) - 1;
  const to = /** @type {Record<string, number>} */ ({
    ArrowDown: from + 1,
    ArrowUp: from < 0 ? last : from - 1,
    PageDown: from + Math.max(1, page - 1),
    PageUp: from - Math.max(1, page - 1),
    Home: 0,
    End: last,
  })[key];
  return to === undefined ? -1 : Math.min(Math.max(to, 0), last);
}

/** @param {number} first @param {number} end @param {number} rows @returns {Span} */
function clamp(first, end, rows) {
  const to = Math.min(Math.max(end, 0), rows);
  return { first: Math.min(Math.max(first, 0), to), end: to };
}
