// @ts-check
// Draws the arena of a Game on a canvas.
import { place } from './labels.js';

/** Time constant with which a player glides to the position of the newest state, in ms. */
const GLIDE_MS = 55;
/** How long an effect is shown, in ms. */
const EFFECT_MS = 1200;

/** Radii in world units, and the min radii in CSS pixels. */
const PLAYER_RADIUS = 30;
const PLAYER_LEAST = 11;
const GEM_RADIUS = 18;
const GEM_LEAST = 6;
/** Distance of the dots on the floor, in world units. */
const DOT_SPACING = 75;

/** The colours of the style sheet that a picture needs. */
const INKS = /** @type {const} */ (['floor', 'dot', 'text', 'halo', 'gem', 'gem-edge']);

/**
 * The colour of a seat, the same on every page.
 * @param {number} seat
 */
export function seatColour(seat) {
  return `oklch(0.55 0.165 ${Math.round((seat * 137.508 + 110) % 360)})`;
}

/** An Arena draws one Game on one canvas. It changes nothing in the game. */
export class Arena {
  /** The canvas drawn on. */
  canvas;
  #game;
  #context;
  #calm = matchMedia('(prefers-reduced-motion: reduce)');
  /** @type {Record<typeof INKS[number], string>} */
  #ink = /** @type {any} */ ({});
  /** Device pixels in a CSS pixel. */
  #ratio = 1;
  /** Device pixels in a world unit. */
  #scale = 1;
  #drawn = 0;
  /** The highest score: its players wear the crown. */
  #best = 0;
  /** Where each seat is shown, in world units. @type {Map<number, {x: number, y: number}>} */
  #shown = new Map();
  /** @type {{x: number, y: number, text: string, colour: string, since: number}[]} */
  #effects = [];

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {import('./game.js').Game} game
   */
  constructor(canvas, game) {
    this.canvas = canvas;
    this.#game = game;
    this.#context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    new ResizeObserver(() => this.#fit()).observe(canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#readInk());
    this.#readInk();
    this.#fit();
    game.addEventListener('take', (event) => this.#take(/** @type {CustomEvent} */ (event).detail));
    game.addEventListener('leave', (event) => this.#leave(/** @type {CustomEvent} */ (event).detail));
    game.addEventListener('welcome', () => this.#shown.clear());
  }

  /**
   * Draws the game as it is now.
   * @param {number} now as of performance.now()
   */
  draw(now) {
    this.#glide(now);
    this.#context.setTransform(1, 0, 0, 1, 0, 0);
    this.#drawFloor();
    for (const gem of this.#game.gems.values()) this.#drawGem(gem);
    this.#best = Math.max(...[...this.#game.players.values()].map(({ score }) => score));
    const players = this.#inDrawingOrder();
    for (const player of players) this.#drawPlayer(player);
    this.#drawNames(players.reverse()); // the own name is placed first
    this.#effects = this.#effects.filter((effect) => now - effect.since < EFFECT_MS);
    for (const effect of this.#effects) this.#drawEffect(effect, Math.max(0, now - effect.since) / EFFECT_MS); // a frame may be older than the effect
  }

  /**
   * The world coordinates of a pointer event on the canvas.
   * @param {PointerEvent} event
   */
  locate(event) {
    const box = this.canvas.getBoundingClientRect();
    const { width, height } = this.#game.world;
    return {
      x: ((event.clientX - box.left) / box.width) * width,
      y: ((event.clientY - box.top) / box.height) * height,
    };
  }

  /** Sizes the canvas to its box, in device pixels. */
  #fit() {
    this.#ratio = Math.min(devicePixelRatio || 1, 2);
    const box = this.canvas.getBoundingClientRect();
    this.canvas.width = Math.max(1, Math.round(box.width * this.#ratio));
    this.canvas.height = Math.max(1, Math.round(box.height * this.#ratio));
    this.#scale = this.canvas.width / this.#game.world.width;
  }

  /** Reads the colours from the style sheet, which has light and dark ones. */
  #readInk() {
    const style = getComputedStyle(this.canvas);
    for (const name of INKS) this.#ink[name] = style.getPropertyValue(`--arena-${name}`).trim();
  }

  /** Moves everybody some of the way to where the newest state has them. @param {number} now */
  #glide(now) {
    const part = 1 - Math.exp(-(now - this.#drawn) / GLIDE_MS);
    this.#drawn = now;
    const { players } = this.#game;
    for (const seat of this.#shown.keys()) if (!players.has(seat)) this.#shown.delete(seat);
    for (const player of players.values()) {
      const at = this.#shown.get(player.seat) ?? { x: player.x, y: player.y };
      at.x += (player.x - at.x) * part;
      at.y += (player.y - at.y) * part;
      this.#shown.set(player.seat, at);
    }
  }

  /** The own player is drawn last, above the others. */
  #inDrawingOrder() {
    const mine = this.#game.seat;
    return [...this.#game.players.values()].sort((a, b) => Number(a.seat === mine) - Number(b.seat === mine));
  }

  #drawFloor() {
    const c = this.#context;
    const { width, height } = this.#game.world;
    c.fillStyle = this.#ink.floor;
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    c.fillStyle = this.#ink.dot;
    for (let x = DOT_SPACING / 2; x < width; x += DOT_SPACING) {
      for (let y = DOT_SPACING / 2; y < height; y += DOT_SPACING) {
        c.beginPath();
        c.arc(x * this.#scale, y * this.#scale, 1.1 * this.#ratio, 0, 2 * Math.PI);
        c.fill();
      }
    }
  }

  /** @param {{x: number, y: number}} gem */
  #drawGem(gem) {
    const c = this.#context;
    const r = Math.max(GEM_RADIUS * this.#scale, GEM_LEAST * this.#ratio);
    const x = gem.x * this.#scale;
    const y = gem.y * this.#scale;
    c.beginPath();
    c.moveTo(x, y - r);
    c.lineTo(x + r * 0.78, y);
    c.lineTo(x, y + r);
    c.lineTo(x - r * 0.78, y);
    c.closePath();
    c.fillStyle = this.#ink.gem;
    c.fill();
    c.beginPath();
    c.moveTo(x, y - r);
    c.lineTo(x + r * 0.78, y);
    c.lineTo(x, y + r);
    c.closePath();
    c.fillStyle = this.#ink['gem-edge'];
    c.fill();
  }

  /** @param {import('./game.js').Player} player */
  #drawPlayer(player) {
    const c = this.#context;
    const at = this.#shown.get(player.seat);
    if (!at) return;
    const mine = player.seat === this.#game.seat;
    const r = this.#radius;
    const x = at.x * this.#scale;
    const y = at.y * this.#scale;
    const colour = seatColour(player.seat);
    if (mine) this.#drawRing(x, y, r + 5 * this.#ratio, 3 * this.#ratio, colour);
    c.beginPath();
    c.arc(x, y, r, 0, 2 * Math.PI);
    c.fillStyle = player.wanderer ? this.#ink.floor : colour;
    c.fill();
    if (player.wanderer) this.#drawRing(x, y, r - this.#ratio, 2 * this.#ratio, colour);
    c.font = `700 ${Math.round(r)}px system-ui, sans-serif`;
    c.textAlign = 'center';
    c.textBaseline = 'middle';
    c.fillStyle = player.wanderer ? this.#ink.text : '#fff';
    c.fillText(String(player.seat), x, y + r * 0.07);
    if (player.score > 0 && player.score === this.#best) this.#drawCrown(x, y - r - (mine ? 8 : 3) * this.#ratio);
  }

  /** The radius of a player, in device pixels. */
  get #radius() {
    return Math.max(PLAYER_RADIUS * this.#scale, PLAYER_LEAST * this.#ratio);
  }

  /** @param {import('./game.js').Player[]} players the first has the first choice of place */
  #drawNames(players) {
    const distance = this.#radius + 13 * this.#ratio;
    const labels = players.flatMap(({ seat, name, score }) => {
      const at = this.#shown.get(seat);
      if (!at) return [];
      const bold = seat === this.#game.seat;
      const text = bold ? `${name} (you)` : name;
      const crown = score > 0 && score === this.#best ? 16 * this.#ratio : 0;
      const y = at.y * this.#scale;
      return [
        {
          x: at.x * this.#scale,
          half: this.#halfWidth(text, bold),
          text,
          bold,
          below: y + distance,
          above: y - distance - crown,
        },
      ];
    });
    const field = { width: this.canvas.width, height: this.canvas.height, line: 14 * this.#ratio };
    for (const { x, y, text, bold } of place(labels, field)) this.#write(text, x, y, bold);
  }

  /** Half of the width of a label with its halo; sets the font. @param {string} text @param {boolean} bold */
  #halfWidth(text, bold) {
    this.#context.font = `${bold ? 700 : 500} ${Math.round(11.5 * this.#ratio)}px system-ui, sans-serif`;
    return this.#context.measureText(text).width / 2 + 3 * this.#ratio;
  }

  /** @param {number} x @param {number} y of its foot */
  #drawCrown(x, y) {
    const c = this.#context;
    const u = 1.6 * this.#ratio;
    c.beginPath();
    c.moveTo(x - 6 * u, y);
    for (const [dx, dy] of [
      [-6.5, -7],
      [-3, -3.5],
      [0, -8.5],
      [3, -3.5],
      [6.5, -7],
      [6, 0],
    ])
      c.lineTo(x + dx * u, y + dy * u);
    c.closePath();
    c.fillStyle = this.#ink.gem;
    c.fill();
    c.lineWidth = this.#ratio;
    c.strokeStyle = this.#ink['gem-edge'];
    c.stroke();
  }

  /** @param {number} x @param {number} y @param {number} r @param {number} width @param {string} colour */
  #drawRing(x, y, r, width, colour) {
    const c = this.#context;
    c.beginPath();
    c.arc(x, y, r, 0, 2 * Math.PI);
    c.lineWidth = width;
    c.strokeStyle = colour;
    c.stroke();
  }

  /** Writes a label with a halo, so that it can be read on everything. @param {string} text @param {number} x @param {number} y @param {boolean} bold */
  #write(text, x, y, bold) {
    const c = this.#context;
    const half = this.#halfWidth(text, bold);
    const inside = Math.min(Math.max(x, half), this.canvas.width - half);
    c.lineWidth = 3 * this.#ratio;
    c.lineJoin = 'round';
    c.strokeStyle = this.#ink.halo;
    c.strokeText(text, inside, y);
    c.fillStyle = this.#ink.text;
    c.fillText(text, inside, y);
  }

  /** @param {{x: number, y: number, text: string, colour: string}} effect @param {number} age from 0 to 1 */
  #drawEffect(effect, age) {
    const c = this.#context;
    const x = effect.x * this.#scale;
    const y = effect.y * this.#scale;
    const rise = this.#calm.matches ? 26 : 20 + 22 * age;
    c.globalAlpha = this.#calm.matches ? 1 : 1 - age * age;
    if (!this.#calm.matches) {
      this.#drawRing(x, y, (GEM_RADIUS + 60 * age) * this.#scale, 2 * this.#ratio, effect.colour);
    }
    this.#write(effect.text, x, Math.max(y - rise * this.#ratio, 12 * this.#ratio), true);
    c.globalAlpha = 1;
  }

  /** A gem was taken where it lay. @param {{x: number, y: number, by: number}} taking */
  #take({ x, y, by }) {
    if (by === this.#game.seat) this.#addEffect(x, y, '+1', by);
  }

  /** A player has left. @param {import('./game.js').Player} player */
  #leave({ x, y, seat, score }) {
    this.#addEffect(x, y, `Seat ${seat} left, ${score} ${score === 1 ? 'point' : 'points'} gone`, seat);
  }

  /** @param {number} x @param {number} y @param {string} text @param {number} seat */
  #addEffect(x, y, text, seat) {
    this.#effects.push({ x, y, text, colour: seatColour(seat), since: performance.now() });
  }
}
