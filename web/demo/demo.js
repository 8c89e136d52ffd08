// @ts-check
// The demo page: two games side by side, and the controls that steer them and cut their connections.
import { ReseatSocket } from '/reseat.js';
import { Game } from './game.js';
import { Box } from './letters.js';
import { Line } from './line.js';
import { Hand, autopilot } from './pilot.js';
import { Nodes } from './nodes.js';
import { Panel } from './panel.js';
import { report, showLosses, showProof } from './proof.js';
import { ReloadStore, leftBehind, nameOfTab, rememberLeaving } from './reload.js';
import { Story } from './story.js';
import { COLUMN_MS, Timeline, Track } from './timeline.js';
import { Trials } from './trials.js';
import { count, plainWords, reseatWords } from './words.js';

/** How often inputs are sent, and the min time between two if the direction changes, in ms. */
const INPUT_MS = 100;
const INPUT_LEAST_MS = 40;
/** How often the numbers are updated, in ms. */
const REFRESH_MS = 100;

const ANIMALS = [
  'Otter',
  'Heron',
  'Badger',
  'Lynx',
  'Marten',
  'Wren',
  'Puffin',
  'Ibex',
  'Tapir',
  'Gecko',
  'Civet',
  'Robin',
];

/** @param {string} name */
function playUrl(name) {
  const url = new URL('/demo/play', location.href);
  url.protocol = url.protocol.replace('http', 'ws');
  url.searchParams.set('name', name);
  return url.href;
}

/**
 * `expected`: a cut made by a button, until it shows as a drop, or as a silence that is over.
 * @typedef {{game: Game, panel: Panel, track: Track, box: Box, chosen: HTMLInputElement, cuts: number, expected: {how: string} | null}} Side
 */

/**
 * A game with its panel, and how often its connection was cut, by a button or otherwise.
 * @param {string} id
 * @param {import('./panel.js').Words} words
 * @param {() => WebSocket} makeSocket
 * @param {import('./game.js').Carried} [earlier] what the page before has counted
 * @returns {Side}
 */
function makeSide(id, words, makeSocket, earlier) {
  const game = new Game(makeSocket, earlier);
  const panel = new Panel(byId(id), game, words);
  const chosen = /** @type {HTMLInputElement} */ (byId(`cut-${id}`));
  const side = { game, panel, track: new Track(), box: new Box(byId(id), game), chosen, cuts: 0, expected: null };
  let drops = 0;
  game.addEventListener('phase', () => {
    if (game.totals.drops === drops) return;
    drops = game.totals.drops;
    if (side.expected) side.expected = null;
    else side.cuts++;
  });
  panel.addEventListener('heard', () => (side.expected = null));
  return side;
}

/** Whether the newest cut is not over: nobody knows yet what it costs. @param {Side} side */
function cutOpen({ game, panel, expected }) {
  return expected !== null || game.phase === 'away' || panel.state === 'silent';
}

/** @param {string} id */
function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

const name = nameOfTab(ANIMALS);
const left = leftBehind();
const storage = new ReloadStore();
/** The transport of both sockets: the browser's WebSocket, with delay and an airplane mode. */
const line = new Line();
const { WebSocket } = line;
// The two lines that differ.
const reseat = makeSide(
  'reseat',
  reseatWords,
  () => new ReseatSocket(playUrl(name), 'arena.v1', { WebSocket, storage }),
  left?.counts,
);
const plain = makeSide(
  'plain',
  plainWords,
  () => /** @type {any} */ (new WebSocket(playUrl(`${name} plain`), 'arena.v1')),
);
const sides = [reseat, plain];
const nodes = new Nodes(line, sides, [byId('reseat'), byId('plain')]);

// Steering.

const hand = new Hand();
const autopilotBox = /** @type {HTMLInputElement} */ (byId('autopilot'));
/** What a script steers instead of a person. @type {{x: number, y: number} | null} */
let scripted = null;
let lastInput = 0;

/** @param {Game} game */
function direction(game) {
  if (scripted) return scripted;
  if (hand.steers || !autopilotBox.checked) return hand.direction(game.self);
  return autopilot(game);
}

function sendInputs() {
  lastInput = performance.now();
  for (const { game } of sides) game.steer(direction(game));
}

hand.listenToKeys(window);
for (const { panel } of sides) hand.listenToPointer(panel.arena.canvas, (event) => panel.arena.locate(event));
hand.addEventListener('change', () => {
  if (performance.now() - lastInput >= INPUT_LEAST_MS) sendInputs();
});
setInterval(sendInputs, INPUT_MS);

// Cutting.

const notice = byId('cut-notice');

/** The gateway's answer if there is no such connection: it is lost already. */
const LOST_ALREADY = 404;
/** How long a cut may take to show, in ms. */
const SHOW_MS = 5000;

/**
 * Asks the gateway to cut the connection of a side. Returns the status of its answer; 0 if there
 * was none, or nothing to cut.
 * @param {Side} side
 * @param {string} how close, reset or silence
 * @param {number} ms how long a silence lasts
 */
async function cutSide(side, how, ms) {
  const pending = side.expected;
  if (side.game.phase !== 'playing' || (pending && pending.how !== 'silence')) return 0;
  const own = { how };
  if (!pending) side.cuts++;
  side.expected = own;
  side.panel.flash('cut');
  side.track.mark('cut');
  const status = await postCut({ session: side.game.session, how, ms });
  if (status !== 204 && side.expected === own) {
    side.expected = pending;
    if (!pending) side.cuts--;
  }
  setTimeout(() => {
    if (side.expected === own && side.panel.state === 'playing') side.expected = null; // too short to show
  }, ms + SHOW_MS);
  return status;
}

/** @param {{session: string, how: string, ms: number}} wish */
async function postCut(wish) {
  try {
    const answer = await fetch(nodes.at('/demo/cut'), {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(wish),
    });
    return answer.status;
  } catch {
    return 0;
  }
}

/**
 * Cuts the connections of the chosen sides at once.
 * @param {string} how
 * @param {{ms?: number, reseat?: boolean, plain?: boolean}} [choice]
 */
async function cut(how, choice = {}) {
  const { ms = 8000, reseat: left = reseat.chosen.checked, plain: right = plain.chosen.checked } = choice;
  const chosen = [...(left ? [reseat] : []), ...(right ? [plain] : [])];
  notice.textContent = chosen.length > 0 ? '' : 'Choose whose connection to cut.';
  const statuses = await Promise.all(chosen.map((side) => cutSide(side, how, ms)));
  const refused = statuses.filter((status) => ![204, 0, LOST_ALREADY].includes(status));
  if (refused.length > 0) notice.textContent = `The gateway did not cut (status ${refused.join(', ')}).`;
  return statuses;
}

for (const { chosen } of sides) chosen.addEventListener('change', () => (notice.textContent = ''));

for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll('[data-how]'))) {
  button.addEventListener('click', () => cut(button.dataset.how ?? '', { ms: Number(button.dataset.ms ?? 0) }));
}

// Trials.

const trials = new Trials(line, sides, (side, ms) => cutSide(side, 'silence', ms), storage);

// The story.

const story = new Story(byId('story'));
story.follow('ReseatSocket', reseat.game, reseat.panel, reseat.track);
story.follow('WebSocket', plain.game, plain.panel, plain.track);
rememberLeaving(reseat.game, plain.game, storage);
if (left?.stored) reseat.game.addEventListener('welcome', () => trials.say(afterReload(left)), { once: true });
else if (left) trials.say(afterReload(left));

/** What a reload has cost. @param {import('./reload.js').Left} before */
function afterReload(before) {
  const { reloaded, down } = reseat.game;
  const [had, lost] = [before.reseat, before.plain].map(
    ({ seat, score }) => `seat ${seat} and its ${count(score, 'point')}`,
  );
  if (reloaded)
    return `Reloaded with storage: still in the session, with ${had}. Replayed: ${count(reloaded.replay, 'message')}, missed: ${down.missed}. WebSocket lost ${lost}.`;
  if (before.stored) return `Reloaded with storage, but the session was over: ${had} are gone. This is a new session.`;
  return before.saidBye
    ? `Reloaded without storage: the old page said goodbye, so the game gave up ${had} at once, and no ghost stays. This is a new session.`
    : `Reloaded without storage or connection, so the old page could not say goodbye: ${had} stay until the grace period is over. This is a new session.`;
}

const timeline = new Timeline(/** @type {HTMLCanvasElement} */ (byId('timeline')), [reseat.track, plain.track]);

setInterval(() => {
  for (const { game, panel, track } of sides) track.add(game.down.got - game.carried, panel.state);
  timeline.draw();
}, COLUMN_MS);
setInterval(
  () =>
    byId('timeline').setAttribute(
      'aria-label',
      `ReseatSocket: ${reseat.track.summary}. WebSocket: ${plain.track.summary}.`,
    ),
  5000,
);

// Display.

function refresh() {
  for (const { panel } of sides) panel.refresh();
  trials.refresh();
  showProof(report(reseat.game, reseat.cuts, cutOpen(reseat)));
  showLosses(report(plain.game, plain.cuts, cutOpen(plain)), plain.game.lastLoss);
}

/** @param {number} now */
function draw(now) {
  for (const { panel } of sides) panel.arena.draw(now);
  requestAnimationFrame(draw);
}

setInterval(refresh, REFRESH_MS);
refresh();
requestAnimationFrame(draw);

/** @param {Side} side */
function reportOf(side) {
  const detached = side.game.phase === 'away';
  return {
    ...report(side.game, side.cuts, cutOpen(side)),
    state: side.panel.state,
    silentMs: side.panel.silence,
    detached,
    letters: side.box.report,
  };
}

// For scripts and end-to-end tests. Members may be added, not changed.
Object.defineProperty(window, 'demo', {
  value: Object.freeze({
    proof: () => reportOf(reseat),
    plain: () => reportOf(plain),
    cut,
    /** @param {boolean} on */
    airplane: (on) => trials.airplane(on),
    letters: () => trials.letters(false),
    states: () => trials.letters(true),
    /** Restarts the game server. */
    restart: () => trials.restart(),
    /** The nodes of the cluster. */
    nodes: () => nodes.report,
    /** Carries on at the node of this id. @param {string} id */
    carryOn: (id) => nodes.carryOn(id),
    /** @param {number} delay round trip, in ms @param {number} jitter of each way, in ms */
    line: (delay, jitter) => Object.assign(line, { delay, jitter }),
    tracks: () => sides.map(({ track }) => track.columns),
    /** @param {boolean} on */
    autopilot: (on) => void (autopilotBox.checked = on),
    /** @param {{x: number, y: number} | null} way a direction that holds until another, null to let go */
    steer: (way) => void (scripted = way),
  }),
});
