// @ts-check
// Airplane mode, messages for a player who is away, a restart of the game server, delay, a reload
// with and without storage.

/** @typedef {import('./line.js').Line} Line */
/** @typedef {{game: import('./game.js').Game, box: import('./letters.js').Box, chosen: HTMLInputElement}} Side */

/** How many letters the game server is asked for, and how long the players are away meanwhile, in ms. */
const LETTERS = 200;
const AWAY_MS = 3000;
/** How long the gateway hears nothing from a page in airplane mode, in ms. */
const SILENT_MS = 60_000;

export class Trials {
  #line;
  #sides;
  #silence;
  #since = 0;
  /** Ends an absence for letters. @type {ReturnType<typeof setTimeout> | undefined} */
  #return;

  /**
   * @param {Line} line
   * @param {any[]} sides
   * @param {(side: any, ms: number) => Promise<unknown>} silence cuts a side's connection off at the gateway
   * @param {import('./reload.js').ReloadStore} store
   */
  constructor(line, sides, silence, store) {
    this.#line = line;
    this.#sides = sides;
    this.#silence = silence;
    byId('airplane').addEventListener('click', () => this.airplane(!line.airplane));
    byId('letters').addEventListener('click', () => this.letters(false));
    byId('states').addEventListener('click', () => this.letters(true));
    byId('restart').addEventListener('click', () => this.restart());
    byId('reload').addEventListener('click', () => location.reload());
    byId('reload-stored').addEventListener('click', () => {
      store.keeps = true;
      location.reload();
    });
    this.#slide('delay');
    this.#slide('jitter');
  }

  /** Updates the running time. */
  refresh() {
    const part = /** @type {HTMLElement} */ (byId('airplane').querySelector('[data-part="since"]'));
    const text = this.#line.airplane ? `${((performance.now() - this.#since) / 1000).toFixed(1)} s` : '';
    if (part.textContent !== text) part.textContent = text;
  }

  /** Takes the network away from both players, or gives it back. @param {boolean} on */
  async airplane(on) {
    if (on === this.#line.airplane) return;
    clearTimeout(this.#return);
    if (on) {
      // The gateway hears nothing more, and finds out by its heartbeat.
      await Promise.all(this.#sides.map((side) => this.#silence(side, SILENT_MS)));
      this.#since = performance.now();
    }
    this.#line.airplane = on;
    byId('airplane').setAttribute('aria-pressed', String(on));
    this.say(
      on
        ? 'No network for either player. The game goes on, and the gateway keeps what it says to the first of them, for 30 s unless --grace says otherwise.'
        : '',
    );
    this.refresh();
    if (!on) dispatchEvent(new Event('online')); // as browsers do
  }

  /**
   * Lets the game server send letters while both players are away.
   * @param {boolean} newest whether of its states only the newest counts meanwhile
   */
  async letters(newest) {
    if (this.#line.airplane) return this.say('Not in airplane mode: the game server could not be asked.');
    for (const { game, box } of this.#sides) {
      box.expect(LETTERS);
      game.askForLetters(LETTERS, newest);
    }
    // The request must arrive before the network is lost.
    await new Promise((done) => setTimeout(done, 100 + this.#line.delay + this.#line.jitter));
    await this.airplane(true);
    this.say(
      `Both players asked for ${LETTERS} messages and are away now, for ${AWAY_MS / 1000} s. The game server sends them meanwhile.` +
        (newest
          ? ' Of its states, 25 a second, it has said that only the newest counts: the gateway skips the others.'
          : ''),
    );
    this.#return = setTimeout(() => this.airplane(false), AWAY_MS);
  }

  /** Restarts the game server, for all its players. */
  async restart() {
    let status = 0;
    try {
      const headers = { 'Content-Type': 'application/json' };
      ({ status } = await fetch('/demo/restart', { method: 'POST', headers, body: '{}' }));
    } catch {
      // status 0
    }
    if (status === 204)
      this.say(
        'The game server restarts: it closes all connections, and takes no new ones for 1.5 s. The gateway dials it again, and the game knows the first player by the session.',
      );
    else if (status === 429) this.say('It was restarted just now.');
    else this.say(`The game server was not restarted (status ${status}).`);
    return status;
  }

  /** @param {string} text */
  say(text) {
    byId('trial-notice').textContent = text;
  }

  /** @param {'delay' | 'jitter'} what */
  #slide(what) {
    const input = /** @type {HTMLInputElement} */ (byId(what));
    const take = () => {
      this.#line[what] = input.valueAsNumber;
      byId(`${what}-says`).textContent = `${input.value} ms`;
    };
    input.addEventListener('input', take);
    take(); // a reload may have kept its place
  }
}

/** @param {string} id */
function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}
