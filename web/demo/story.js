// @ts-check
// The result of each cut in a sentence, newest first.
import { count, skippedToo, time } from './words.js';

/** The max number of sentences. */
const MOST = 6;

/** @typedef {import('./game.js').Game} Game */

/** A Story lists the cuts of both games. */
export class Story {
  #list;

  /** @param {HTMLElement} list */
  constructor(list) {
    this.#list = list;
  }

  /**
   * Follows a game from now on.
   * @param {string} name
   * @param {Game} game
   * @param {import('./panel.js').Panel} panel
   * @param {import('./timeline.js').Track} track
   */
  follow(name, game, panel, track) {
    const outage = () => `no messages for ${time(game.totals.lastBackMs ?? 0)}, back`;
    game.addEventListener('back', () => {
      track.mark('back');
      const { lastReplay, lastSkipped } = game.totals;
      this.tell(
        'good',
        name,
        `${outage()}, ${(lastReplay ?? 0).toLocaleString('en')} replayed${skippedToo(lastSkipped)}`,
      );
    });
    panel.addEventListener('heard', (event) => {
      this.tell(
        '',
        name,
        `no messages for ${time(/** @type {CustomEvent} */ (event).detail)}, back on the old connection`,
      );
    });
    game.addEventListener('lose', () => track.mark('lost'));
    game.addEventListener('welcome', () => {
      const { seat, score } = game.lastLoss;
      if (seat > 0) {
        this.tell('bad', name, `${outage()} as a new player: seat ${seat} and its ${count(score, 'point')} lost`);
      } else if (game.reloaded) {
        const { ms, replay } = game.reloaded;
        track.mark('back');
        this.tell('good', name, `page reloaded, back after ${time(ms)}, ${replay.toLocaleString('en')} replayed`);
      }
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
