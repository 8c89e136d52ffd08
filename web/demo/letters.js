// @ts-check
// Letters: messages that the game server sends while the player is away, shown as dots that fill.

import { count } from './words.js';

/** A Box shows which letters of one game have arrived. */
export class Box {
  #root;
  #words;
  /** Which have come, and in which order they came. @type {number[]} */
  #came = [];
  #of = 0;
  /** How many other messages newer ones have replaced meanwhile. */
  #skipped = 0;
  /** Their seat is lost. */
  #gone = false;

  /** @param {HTMLElement} root @param {import('./game.js').Game} game */
  constructor(root, game) {
    this.#root = /** @type {HTMLElement} */ (root.querySelector('[data-part="dots"]'));
    this.#words = /** @type {HTMLElement} */ (root.querySelector('[data-part="letters"]'));
    game.addEventListener('letter', (event) => this.#take(/** @type {CustomEvent} */ (event).detail.k));
    game.addEventListener('skip', (event) => {
      this.#skipped += /** @type {CustomEvent} */ (event).detail;
      this.show();
    });
    game.addEventListener('lose', () => {
      this.#gone = this.#came.length < this.#of;
      this.show();
    });
  }

  /** How many have arrived. */
  get report() {
    const inOrder = this.#came.every((k, i) => k === i + 1);
    return { of: this.#of, came: this.#came.length, inOrder, skipped: this.#skipped };
  }

  /** Waits for new ones. @param {number} of */
  expect(of) {
    this.#of = of;
    this.#came = [];
    this.#skipped = 0;
    this.#gone = false;
    if (this.#root.parentElement) this.#root.parentElement.hidden = false;
    this.#root.replaceChildren(...Array.from({ length: of }, () => document.createElement('i')));
    this.show();
  }

  /** @param {number} k */
  #take(k) {
    this.#came.push(k);
    this.#root.children[k - 1]?.classList.add('came');
    this.show();
  }

  show() {
    const { of, came, inOrder, skipped } = this.report;
    const how = this.#gone ? ': gone with the seat' : came === of && inOrder ? ', in order' : '';
    const states = skipped > 0 ? `; ${count(skipped, 'older state')} skipped` : '';
    const text = of > 0 ? `${came} of ${of} messages${how}${states}` : '';
    if (this.#words.textContent !== text) this.#words.textContent = text;
    const box = this.#root.parentElement;
    box?.classList.toggle('full', of > 0 && came === of);
    box?.classList.toggle('gone', this.#gone);
  }
}
