// @ts-check
// The last half minute of a socket: how many messages came when, and when the connection was gone.

/** A column of the picture, in ms, and how many there are. */
export const COLUMN_MS = 200;
export const COLUMNS = 150;
const LANE = 44;
const NEAR = 5;

/** @typedef {'cut' | 'back' | 'lost'} Mark */
/** @typedef {{got: number, state: string, marks: Mark[]}} Column */

/** Whether nothing comes, as far as is known. @param {string} state */
const gone = (state) => state === 'silent' || state === 'detached' || state === 'closed';

/** A Track keeps the last half minute of one socket. */
export class Track {
  /** Oldest first. @type {Column[]} */
  columns = [];
  #got = 0;
  /** @type {Mark[]} */
  #marks = [];

  /** Says that something happens now. @param {Mark} mark */
  mark(mark) {
    this.#marks.push(mark);
  }

  /**
   * Ends a column.
   * @param {number} got messages so far, of all connections
   * @param {string} state
   */
  add(got, state) {
    if (gone(state)) this.#backdate();
    this.columns.push({ got: Math.max(0, got - this.#got), state, marks: this.#marks });
    this.#got = got;
    this.#marks = [];
    if (this.columns.length > COLUMNS) this.columns.shift();
  }

  /** An outage begins with the last message, or the cut after that, and is known a while later. */
  #backdate() {
    for (const column of [...this.columns].reverse()) {
      if (column.got > 0 || gone(column.state)) return;
      column.state = 'silent';
      if (column.marks.includes('cut')) return;
    }
  }

  /** As many messages in one column fill its lane: three times the usual number. */
  get full() {
    const counts = this.columns.map(({ got }) => got).filter((got) => got > 0);
    return 3 * Math.max(1, counts.sort((a, b) => a - b)[counts.length >> 1] ?? 1);
  }

  /** A description for screen readers. */
  get summary() {
    const away = this.columns.filter(({ state }) => gone(state)).length;
    const most = Math.max(0, ...this.columns.map(({ got }) => got));
    return `no messages for ${((away * COLUMN_MS) / 1000).toFixed(1)} s of the last half minute, at most ${most} messages in ${COLUMN_MS} ms`;
  }
}

/**
 * The bursts after outages: columns that are over a full lane, and no further apart than NEAR, count as
 * one, since a replay may span columns.
 * @param {Column[]} columns @param {number} full
 * @returns {{at: number, got: number}[]} from which column on, and how many messages
 */
export function bursts(columns, full) {
  /** @type {{at: number, got: number}[]} */
  const found = [];
  let end = 0; // of the newest
  columns.forEach(({ got }, i) => {
    if (got <= full) return;
    const last = found[found.length - 1];
    if (last && i - end <= NEAR) last.got += got;
    else found.push({ at: i, got });
    end = i;
  });
  return found;
}

/** Marks differ in shape, not in colour alone. @type {Record<Mark, [string, string]>} */
const MARKS = { cut: ['✂', 'warn'], back: ['✓', 'good'], lost: ['✕', 'bad'] };

/**
 * Draws a Track. The colours are custom properties of the canvas.
 * @param {HTMLCanvasElement} canvas @param {Track} track
 */
export function draw(canvas, track) {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const width = canvas.clientWidth;
  if (!width) return;
  canvas.width = Math.round(width * ratio);
  canvas.height = LANE * ratio;
  const style = getComputedStyle(canvas);
  const ink = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.font = '600 11px system-ui, sans-serif';
  const step = width / COLUMNS;
  const { columns, full } = track;
  const x = (/** @type {number} */ i) => (COLUMNS - columns.length + i) * step;
  columns.forEach(({ got, state }, i) => {
    c.fillStyle = ink(state === 'closed' ? 'lost' : 'away');
    if (gone(state)) c.fillRect(x(i), 0, step + 0.5, LANE);
    const height = Math.min(1, got / full) * (LANE - 4);
    c.fillStyle = ink(got > full ? 'catch-up' : 'good');
    c.fillRect(x(i), LANE - height, Math.max(1, step - 0.6), height);
  });
  c.fillStyle = ink('catch-up');
  c.textAlign = 'right';
  for (const { at, got } of bursts(columns, full)) c.fillText(String(got), x(at) - 3, 10);
  c.textAlign = 'left';
  columns.forEach(({ marks }, i) =>
    marks.forEach((mark) => {
      const [sign, colour] = MARKS[mark];
      c.fillStyle = ink(colour);
      c.fillRect(x(i), 0, 1.5, LANE);
      c.fillText(sign, x(i) + 4, mark === 'cut' ? 11 : LANE - 14);
    }),
  );
}
