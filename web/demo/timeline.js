// @ts-check
// The last half minute of both players side by side: how many messages came when, and
// when the connection was gone.

/** A column of the picture, in ms, and how many there are. */
export const COLUMN_MS = 200;
export const COLUMNS = 150;
/** As many messages in one column fill its lane; ten come in one when all is well. */
export const FULL = 30;
const LANE = 58;
const GAP = 8;

/** @typedef {import('./panel.js').State} State */
/** @typedef {'cut' | 'back' | 'lost'} Mark */
/** @typedef {{got: number, state: State, marks: Mark[]}} Column */

/** Whether nothing comes, as far as is known. @param {State} state */
const gone = (state) => state !== 'playing' && state !== 'connecting';

/** A Track keeps the last half minute of one game. */
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
   * @param {State} state
   */
  add(got, state) {
    if (gone(state)) this.#backdate();
    this.columns.push({ got: Math.max(0, got - this.#got), state, marks: this.#marks });
    this.#got = got;
    this.#marks = [];
    if (this.columns.length > COLUMNS) this.columns.shift();
  }

  /** An outage begins with the last message, and is known a while later. */
  #backdate() {
    for (const column of this.columns.toReversed()) {
      if (column.got > 0 || column.state !== 'playing') return;
      column.state = 'silent';
    }
  }

  /** A description for screen readers. */
  get summary() {
    const away = this.columns.filter(({ state }) => gone(state)).length;
    const most = Math.max(0, ...this.columns.map(({ got }) => got));
    return `away for ${((away * COLUMN_MS) / 1000).toFixed(1)} s of the last half minute, at most ${most} messages in ${COLUMN_MS} ms`;
  }
}

/**
 * The bursts after outages: adjacent columns that are over a full lane count as one, since a replay
 * may span columns.
 * @param {Column[]} columns
 * @returns {{at: number, got: number}[]} from which column on, and how many messages
 */
export function bursts(columns) {
  /** @type {{at: number, got: number}[]} */
  const found = [];
  columns.forEach(({ got }, i) => {
    if (got <= FULL) return;
    if (i > 0 && columns[i - 1].got > FULL) found[found.length - 1].got += got;
    else found.push({ at: i, got });
  });
  return found;
}

/** The colours of the style sheet that the picture needs. */
const INKS = /** @type {const} */ (['good', 'warn', 'bad', 'muted', 'line', 'catch-up', 'away', 'lost-soft']);

/** The picture of two Tracks. */
export class Timeline {
  #canvas;
  #context;
  #tracks;
  #ratio = 1;
  /** @type {Record<typeof INKS[number], string>} */
  #ink = /** @type {any} */ ({});

  /** @param {HTMLCanvasElement} canvas @param {Track[]} tracks */
  constructor(canvas, tracks) {
    this.#canvas = canvas;
    this.#context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    this.#tracks = tracks;
    new ResizeObserver(() => this.#fit()).observe(canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#readInk());
    this.#readInk();
    this.#fit();
  }

  draw() {
    const c = this.#context;
    c.setTransform(this.#ratio, 0, 0, this.#ratio, 0, 0);
    c.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    this.#tracks.forEach((track, i) => this.#drawLane(track, i * (LANE + GAP)));
  }

  #fit() {
    this.#ratio = Math.min(devicePixelRatio || 1, 2);
    this.#canvas.width = Math.max(1, Math.round(this.#canvas.clientWidth * this.#ratio));
    this.#canvas.height = Math.round((2 * LANE + GAP) * this.#ratio);
    this.draw();
  }

  #readInk() {
    const style = getComputedStyle(this.#canvas);
    for (const name of INKS) this.#ink[name] = style.getPropertyValue(`--${name}`).trim();
  }

  /** @param {Track} track @param {number} top */
  #drawLane({ columns }, top) {
    const c = this.#context;
    const width = this.#canvas.width / this.#ratio;
    const step = width / COLUMNS;
    const first = COLUMNS - columns.length;
    columns.forEach((column, i) => this.#drawColumn(column, (first + i) * step, step, top));
    for (const { at, got } of bursts(columns))
      this.#write(String(got), (first + at) * step - 3, top + 10, this.#ink['catch-up'], 'right');
    c.fillStyle = this.#ink.line;
    c.fillRect(0, top + LANE - 1, width, 1);
    columns.forEach(({ marks }, i) => marks.forEach((mark) => this.#drawMark(mark, (first + i) * step, top)));
  }

  /** @param {Column} column @param {number} x @param {number} step @param {number} top */
  #drawColumn({ got, state }, x, step, top) {
    const c = this.#context;
    if (gone(state)) {
      c.fillStyle = state === 'lost' ? this.#ink['lost-soft'] : this.#ink.away;
      c.fillRect(x, top, step + 0.5, LANE);
    }
    const height = Math.min(1, got / FULL) * (LANE - 4);
    c.fillStyle = got > FULL ? this.#ink['catch-up'] : this.#ink.good;
    c.fillRect(x, top + LANE - height, Math.max(1, step - 0.6), height);
  }

  /** Marks differ in shape, not in colour alone. @param {Mark} mark @param {number} x @param {number} top */
  #drawMark(mark, x, top) {
    const c = this.#context;
    const colour = { cut: this.#ink.warn, back: this.#ink.good, lost: this.#ink.bad }[mark];
    c.fillStyle = colour;
    c.fillRect(x, top, 1.5, LANE);
    this.#write(
      { cut: '✂', back: '✓', lost: '✕' }[mark],
      x + 4,
      mark === 'cut' ? top + 12 : top + LANE - 22,
      colour,
      'left',
    );
  }

  /** @param {string} text @param {number} x @param {number} y @param {string} colour @param {CanvasTextAlign} align */
  #write(text, x, y, colour, align) {
    const c = this.#context;
    c.font = '600 12px system-ui, sans-serif';
    c.textAlign = align;
    c.fillStyle = colour;
    c.fillText(text, x, y);
  }
}
