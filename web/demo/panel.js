// @ts-check
// One panel of the page: a game's picture, seat, score and state in words.
import { Arena, seatColour } from './arena.js';
import { seconds } from './words.js';

/**
 * A connection is silent if nothing came for this long, in ms; the game sends 25 times a second.
 * The panel says so after a longer time.
 */
const SILENT_MS = 900;
const SILENT_WORDS_MS = 1600;

const FULL = 'The arena is full: every seat is taken. Trying again.';

/** @typedef {import('./game.js').Game} Game */
/** @typedef {{pill: string, veil: string, more: string}} Look what a panel shows in a state */
/** @typedef {'connecting' | 'playing' | 'silent' | 'away' | 'lost'} State */

/**
 * The texts of a panel. Status texts are also read aloud, so they contain no running number.
 * @typedef {object} Words
 * @property {Record<State, (game: Game, silence: string) => Look>} looks
 * @property {(game: Game) => string} silent
 * @property {(game: Game) => string} serverAway
 * @property {(game: Game, silence: string) => string} heardAgain
 * @property {(game: Game) => string} away
 * @property {(game: Game) => string} back
 * @property {(game: Game) => string} lost
 * @property {(game: Game) => string} seated
 */

/** What taking a seat means to a player. @param {Game} game */
function moodOf(game) {
  if (game.restarted) return 'good';
  if (game.totals.seatsLost > 0) return 'bad';
  return game.reloaded ? 'good' : '';
}

/** A Panel shows one Game. Event: `heard` at the end of a silence, with its length in ms as detail. */
export class Panel extends EventTarget {
  arena;
  #root;
  #game;
  #words;
  /** When the present silence began, 0 while there is none. */
  #silentSince = 0;
  #silenceSaid = false;

  /**
   * @param {HTMLElement} root the section of the page
   * @param {Game} game
   * @param {Words} words
   */
  constructor(root, game, words) {
    super();
    this.#root = root;
    this.#game = game;
    this.#words = words;
    this.arena = new Arena(/** @type {HTMLCanvasElement} */ (root.querySelector('canvas')), game);
    game.addEventListener('welcome', () => this.#say(words.seated(game), moodOf(game)));
    game.addEventListener('back', () => this.#say(words.back(game), 'good'));
    game.addEventListener('lose', () => this.#say(words.lost(game), 'bad'));
    game.addEventListener('phase', () => this.#changed());
    game.addEventListener('upstream', () => {
      if (game.serverAway) this.#say(words.serverAway(game), 'warn');
      else this.#silenceSaid = false; // the welcome says it
    });
    game.addEventListener('state', () => this.#heard());
  }

  /** What the game is in, silence included. @returns {State} */
  get state() {
    return this.#silentSince > 0 ? 'silent' : this.#game.phase;
  }

  /** How long nothing was heard, in ms; 0 if the connection is not silent. */
  get silence() {
    return this.#silentSince > 0 ? performance.now() - this.#silentSince : 0;
  }

  /** Updates seat, score and state; called several times a second. */
  refresh() {
    const game = this.#game;
    if (game.phase === 'playing') this.#listen(performance.now() - game.heard);
    const look = this.#words.looks[this.state](game, seconds(this.silence));
    this.#root.dataset.state = this.state;
    this.#write('pill', look.pill);
    this.#write('veil', look.veil);
    this.#write('veil-more', look.more);
    this.#write('seat', game.seat ? String(game.seat) : '–');
    this.#write('score', String(game.score));
    this.#write('points', game.score === 1 ? 'point' : 'points');
    this.#write('chip', game.seat ? String(game.seat) : '–');
    this.#part('chip').style.backgroundColor = game.seat ? seatColour(game.seat) : '';
  }

  /** Marks the panel for a moment. @param {'cut' | 'good' | 'bad'} mark */
  flash(mark) {
    this.#root.classList.remove('flash-cut', 'flash-good', 'flash-bad');
    void this.#root.offsetWidth; // restarts the animation
    this.#root.classList.add(`flash-${mark}`);
  }

  #changed() {
    if (this.#game.phase === 'away') this.#say(this.#words.away(this.#game), 'warn');
    if (this.#game.full && this.#part('status').textContent !== FULL) this.#say(FULL, 'bad');
    if (this.#game.phase !== 'playing') this.#silentSince = 0;
    this.refresh();
  }

  /** Nothing has come for so long. @param {number} ms */
  #listen(ms) {
    if (ms > SILENT_MS && this.#silentSince === 0) {
      this.#silentSince = this.#game.heard;
      this.#silenceSaid = false;
    }
    if (ms > SILENT_WORDS_MS && !this.#silenceSaid) {
      this.#silenceSaid = true;
      this.#say(this.#words.silent(this.#game), 'warn');
    }
  }

  #heard() {
    if (this.#silentSince === 0) return;
    const { silence } = this;
    this.#silentSince = 0;
    this.dispatchEvent(new CustomEvent('heard', { detail: silence }));
    if (this.#silenceSaid) this.#say(this.#words.heardAgain(this.#game, seconds(silence)), 'good');
  }

  /** @param {string} text @param {'' | 'good' | 'warn' | 'bad'} mood */
  #say(text, mood) {
    this.#write('status', text);
    this.#part('status').dataset.mood = mood;
    if (mood === 'good' || mood === 'bad') this.flash(mood);
  }

  /** @param {string} name @param {string} text */
  #write(name, text) {
    const part = this.#part(name);
    if (part.textContent !== text) part.textContent = text;
  }

  /** @param {string} name @returns {HTMLElement} */
  #part(name) {
    return /** @type {HTMLElement} */ (this.#root.querySelector(`[data-part="${name}"]`));
  }
}
