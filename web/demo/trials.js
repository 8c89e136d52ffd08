// @ts-check
// Messages for a player who is away, a reload with and without storage.

/** How many letters the game server is asked for, and how long the players are away meanwhile, in ms. */
const LETTERS = 200;
const AWAY_MS = 3000;

export class Trials {
  #dev;
  #sides;

  /**
   * @param {import('../dev/panel.js').ReseatDev} dev
   * @param {{game: import('./game.js').Game, box: import('./letters.js').Box}[]} sides
   * @param {import('./reload.js').ReloadStore} store
   */
  constructor(dev, sides, store) {
    this.#dev = dev;
    this.#sides = sides;
    byId('letters').addEventListener('click', () => this.letters(false));
    byId('states').addEventListener('click', () => this.letters(true));
    byId('reload').addEventListener('click', () => location.reload());
    byId('reload-stored').addEventListener('click', () => {
      store.keeps = true;
      location.reload();
    });
  }

  /**
   * Lets the game server send letters while both players are away.
   * @param {boolean} newest whether of its states only the newest counts meanwhile
   */
  async letters(newest) {
    if (this.#dev.flying) return this.say('Not in airplane mode: the game server could not be asked.');
    for (const { game, box } of this.#sides) {
      box.expect(LETTERS);
      game.askForLetters(LETTERS, newest);
    }
    await new Promise((done) => setTimeout(done, 100)); // the request must arrive before the network is lost
    await this.#dev.airplane(true);
    this.say(
      `Both players asked for ${LETTERS} messages and are away now, for ${AWAY_MS / 1000} s. The game server sends them meanwhile.` +
        (newest
          ? ' Of its states, 25 a second, it has said that only the newest counts: the gateway skips the others.'
          : ''),
    );
    setTimeout(() => this.#dev.airplane(false), AWAY_MS);
  }

  /** @param {string} text */
  say(text) {
    byId('trial-notice').textContent = text;
  }
}

/** @param {string} id */
function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}
