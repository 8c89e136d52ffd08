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
 * `silences`: cuts that ended on the old connection; `expected`: a cut, until it shows as a drop, or as a
 * silence that is over.
 * @typedef {{game: Game, panel: Panel, box: Box, silences: number, expected: boolean}} Side
 */

/**
 * A game with its panel.
 * @param {string} id
 * @param {import('./panel.js').Words} words
 * @param {() => WebSocket} makeSocket
 * @param {import('./game.js').Carried} [earlier] what the page before has counted
 * @returns {Side}
 */
function makeSide(id, words, makeSocket, earlier) {
  const game = new Game(makeSocket, earlier);
  const panel = new Panel(byId(id), game, words);
  const side = { game, panel, box: new Box(byId(id), game), silences: 0, expected: false };
  panel.addEventListener('heard', () => {
    side.silences += Number(side.expected);
    side.expected = false;
  });
  game.addEventListener('phase', () => {
    if (game.phase !== 'playing') side.expected = false;
  });
  return side;
}

/** Whether the newest cut is not over: nobody knows yet what it costs. @param {Side} side */
function cutOpen({ game, panel }) {
  return game.phase === 'away' || panel.state === 'silent';
}

/** How often the connection was cut, as far as it showed. @param {Side} side */
function cuts({ game, panel, silences, expected }) {
  return game.totals.drops + silences + Number(panel.state === 'silent' && expected);
}

/** @param {string} id */
function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

const name = nameOfTab(ANIMALS);
const left = leftBehind();
const storage = new ReloadStore();
/** The transport of both sockets: the browser's WebSocket, led to a node of the cluster. */
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

// Cutting: the panel of --dev does it.

const dev = /** @type {import('../dev/panel.js').ReseatDev} */ (document.querySelector('reseat-dev'));
dev.addEventListener('fault', (event) => {
  const { fault, sockets } = /** @type {CustomEvent} */ (event).detail;
  for (const [side, name] of /** @type {const} */ ([
    [reseat, 'ReseatSocket'],
    [plain, 'WebSocket'],
  ])) {
    if (side.game.phase !== 'playing' || !sockets.includes(name)) continue;
    side.panel.flash('cut');
    side.expected = fault === 'silence';
  }
});

// Trials.

const trials = new Trials(dev, sides, storage);

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

// Display.

function refresh() {
  for (const { panel } of sides) panel.refresh();
  showProof(report(reseat.game, cuts(reseat), cutOpen(reseat)));
  showLosses(report(plain.game, cuts(plain), cutOpen(plain)), plain.game.lastLoss);
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
    ...report(side.game, cuts(side), cutOpen(side)),
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
    /** @param {string} how close, reset or silence @param {{ms?: number}} [choice] */
    cut: (how, { ms = 8000 } = {}) => dev.cut(how === 'silence' ? { fault: how, for: `${ms}ms` } : { fault: how }),
    /** @param {boolean} on */
    airplane: (on) => dev.airplane(on),
    letters: () => trials.letters(false),
    states: () => trials.letters(true),
    /** Restarts the game server. */
    restart: () => dev.cut({ fault: 'restart' }),
    /** The nodes of the cluster. */
    nodes: () => nodes.report,
    /** Carries on at the node of this id. @param {string} id */
    carryOn: (id) => nodes.carryOn(id),
    /** @param {number} latency each way, in ms @param {number} jitter more or less, in ms */
    line: (latency, jitter) => dev.cut({ fault: 'slow', for: '10m', latency: `${latency}ms`, jitter: `${jitter}ms` }),
    tracks: () => dev.tracks.map(({ columns }) => columns),
    /** @param {boolean} on */
    autopilot: (on) => void (autopilotBox.checked = on),
    /** @param {{x: number, y: number} | null} way a direction that holds until another, null to let go */
    steer: (way) => void (scripted = way),
  }),
});
