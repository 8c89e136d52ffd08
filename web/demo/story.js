// @ts-check
// What became of each cut, in sentences, newest first.
import { count } from './words.js';

/** As many are kept on the page. */
const MOST = 6;

/** @typedef {import('./game.js').Game} Game */

/** A Story tells of both games, in a list. */
export class Story {
  #list;

  /** @param {HTMLElement} list */
  constructor(list) {
    this.#list = list;
  }

  /**
   * Tells of a game from now on.
   * @param {string} name
   * @param {Game} game
   * @param {import('./timeline.js').Track} track
   */
  follow(name, game, track) {
    game.addEventListener('back', () => {
      const { lastBackMs, lastReplay } = game.totals;
      track.mark('back');
      this.tell('good', name, `back in seat ${game.seat} after ${duration(lastBackMs ?? 0)}: ${count(lastReplay ?? 0, 'message')} kept for it, and caught up`);
    });
    game.addEventListener('lose', () => {
      const { seat, score } = game.lastLoss;
      track.mark('lost');
      this.tell('bad', name, `seat ${seat} is lost, and ${count(score, 'point')} with it`);
    });
  }

  /** @param {'good' | 'bad' | ''} mood @param {string} who @param {string} text */
  tell(mood, who, text) {
    const item = document.createElement('li');
    item.dataset.mood = mood;
    const name = document.createElement('b');
    name.textContent = who;
    item.append(`${new Date().toLocaleTimeString('en-GB')} `, name, ` ${text}`);
    this.#list.prepend(item);
    while (this.#list.children.length > MOST) this.#list.lastElementChild?.remove();
  }
}

/** @param {number} ms */
function duration(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
