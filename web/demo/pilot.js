// @ts-check
// Steering: by keys or pointer, else by an autopilot.

/** @typedef {{x: number, y: number}} Vec */

/** How long after the last key or pointer event the autopilot waits, in ms. */
const HAND_MS = 3000;
/** A target nearer than this is reached, in world units. */
const REACHED = 6;
/** A player slows down nearer than this to the target: farther than a step between two inputs. */
const SLOW = 60;
/** By how much another player must be nearer to a gem for the autopilot to look elsewhere. */
const CONCEDED = 60;
/** Players nearer to each other than this stand side by side. */
const BESIDE = 90;
/** More than the distance of any two places of the arena. */
const FAR = 2000;

/** @type {Record<string, Vec>} */
const KEYS = {
  KeyW: { x: 0, y: -1 },
  KeyA: { x: -1, y: 0 },
  KeyS: { x: 0, y: 1 },
  KeyD: { x: 1, y: 0 },
  ArrowUp: { x: 0, y: -1 },
  ArrowLeft: { x: -1, y: 0 },
  ArrowDown: { x: 0, y: 1 },
  ArrowRight: { x: 1, y: 0 },
};

const STAND = Object.freeze({ x: 0, y: 0 });

/**
 * The direction from one place to another, 1 long, or none when it is reached.
 * @param {Vec} from
 * @param {Vec} to
 * @returns {Vec}
 */
export function heading(from, to) {
  const x = to.x - from.x;
  const y = to.y - from.y;
  const length = Math.hypot(x, y);
  return length < REACHED ? STAND : { x: x / length, y: y / length };
}

/**
 * A heading that grows shorter near its target, so as not to walk past it.
 * @param {Vec} from
 * @param {Vec} to
 * @returns {Vec}
 */
export function approach(from, to) {
  const { x, y } = heading(from, to);
  const part = Math.min(1, distance(from, to) / SLOW);
  return { x: x * part, y: y * part };
}

/**
 * The direction of the autopilot: to the nearest gem, except those that another player is much
 * nearer to. Of players side by side the one in the lower seat takes the best gem, the next one the
 * second best, so that they separate.
 * @param {Pick<import('./game.js').Game, 'self' | 'seat' | 'players' | 'gems'>} game
 * @returns {Vec}
 */
export function autopilot({ self, seat, players, gems }) {
  if (!self || gems.size === 0) return STAND;
  const others = [...players.values()].filter((player) => player.seat !== seat);
  const first = others.filter((other) => !other.wanderer && other.seat < seat && distance(other, self) < BESIDE);
  const ranked = [...gems.values()]
    .map((gem) => ({ gem, cost: cost(self, gem, others) }))
    .sort((a, b) => a.cost - b.cost);
  return heading(self, ranked[Math.min(first.length, ranked.length - 1)].gem);
}

/**
 * The distance of a gem; those that another player is much nearer to come after all others.
 * @param {Vec} self
 * @param {Vec} gem
 * @param {Vec[]} others
 */
function cost(self, gem, others) {
  const own = distance(self, gem);
  const conceded = others.some((other) => distance(other, gem) + CONCEDED < own);
  return conceded ? own + FAR : own;
}

/** @param {Vec} a @param {Vec} b */
function distance(a, b) {
  return Math.hypot(a.x - b.x, a.y - b.y);
}

/** A Hand reads keys and pointer. Event: `change`. */
export class Hand extends EventTarget {
  /** @type {Set<string>} codes of the keys held */
  #held = new Set();
  /** Where the pointer is held, in world units. @type {Vec | null} */
  #target = null;
  #lastUsed = -Infinity;

  /** Whether a person steers, or did so a moment ago. */
  get steers() {
    return this.#held.size > 0 || this.#target !== null || performance.now() - this.#lastUsed < HAND_MS;
  }

  /**
   * The direction for a player at a position.
   * @param {Vec | undefined} at
   * @returns {Vec}
   */
  direction(at) {
    if (this.#target) return at ? approach(at, this.#target) : STAND;
    let x = 0;
    let y = 0;
    for (const code of this.#held) {
      x += KEYS[code].x;
      y += KEYS[code].y;
    }
    return heading(STAND, { x: x * 10, y: y * 10 });
  }

  /**
   * Listens to the keys of the whole page, text fields and shortcuts excepted.
   * @param {Window} page
   */
  listenToKeys(page) {
    page.addEventListener('keydown', (event) => {
      if (!(event.code in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target instanceof Element && event.target.closest('input:not([type=checkbox]), select, textarea'))
        return;
      event.preventDefault();
      if (event.repeat) return;
      this.#held.add(event.code);
      this.#used();
    });
    page.addEventListener('keyup', (event) => {
      if (this.#held.delete(event.code)) this.#used();
    });
    page.addEventListener('blur', () => this.#letGo());
  }

  /**
   * Listens to a pointer held on an arena.
   * @param {HTMLElement} element
   * @param {(event: PointerEvent) => Vec} locate
   */
  listenToPointer(element, locate) {
    const aim = (/** @type {PointerEvent} */ event) => {
      this.#target = locate(event);
      this.#used();
    };
    element.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      element.setPointerCapture(event.pointerId);
      aim(event);
    });
    element.addEventListener('pointermove', (event) => {
      if (this.#target) aim(event);
    });
    for (const type of ['pointerup', 'pointercancel', 'lostpointercapture']) {
      element.addEventListener(type, () => {
        if (!this.#target) return;
        this.#target = null;
        this.#used();
      });
    }
  }

  #letGo() {
    this.#held.clear();
    this.#target = null;
    this.#used();
  }

  #used() {
    this.#lastUsed = performance.now();
    this.dispatchEvent(new Event('change'));
  }
}
