import assert from 'node:assert/strict';
import { startGame } from './game.js';
import { startGateway } from './gateway.js';
import { Relay } from './relay.js';
import { startSite } from './site.js';
import { until } from './until.js';

/** @typedef {import('playwright-core').Page} Page */
/** @typedef {import('./game.js').Seat} Seat */
/** @typedef {Awaited<ReturnType<typeof startScene>>} Scene */

/**
 * A game server, a gateway before it, a relay before that, and a site with the
 * page that plays.
 * @param {{after: (run: () => any) => void}} t
 * @param {string[]} flags of the gateway
 */
export async function startScene(t, ...flags) {
  const behind = await startBehind(t, ...flags);
  return { ...behind, relay: await Relay.start(t, behind.gateway.host) };
}

/**
 * The same without the relay.
 * @param {{after: (run: () => any) => void}} t
 * @param {string[]} flags
 */
export async function startBehind(t, ...flags) {
  const [site, game] = await Promise.all([startSite(t), startGame(t)]);
  const gateway = await startGateway(t, '--upstream', game.url, '--origin', site.origin, ...flags);
  return { site, game, gateway };
}

/**
 * Opens the site's page, which has imported Reseat's client from the gateway.
 * @param {Page} page
 * @param {{site: {origin: string}, gateway: {host: string}}} scene
 * @param {string} [csp] the page's Content-Security-Policy
 */
export async function openSite(page, { site, gateway }, csp = '') {
  await page.goto(`${site.origin}/?gateway=${gateway.host}&csp=${encodeURIComponent(csp)}`);
  await page.waitForFunction('window.ready');
}

/** What a page is to do. `url` is where, by default a path of its own through the relay. */
/** @typedef {{url?: string, protocols?: string[], binaryType?: BinaryType, options?: object}} SocketSpec */

let paths = 0;

/**
 * Opens the site's page and lets it play over a ReseatSocket, until its `open`.
 * @param {Page} page
 * @param {Scene} scene
 * @param {SocketSpec} [spec]
 */
export async function play(page, scene, spec) {
  await openSite(page, scene);
  return join(page, scene, spec);
}

/**
 * Lets a page that is open play.
 * @param {Page} page
 * @param {Scene} scene
 * @param {SocketSpec} [spec]
 */
export async function join(page, scene, spec = {}) {
  const path = `/play/${++paths}`;
  await connect(page, { url: `ws://${scene.relay.host}${path}`, ...spec });
  const player = new RemotePlayer(page);
  await player.until('the page is in its session', ({ count }) => count.open);
  const seat = scene.game.seats.find((each) => each.path === path);
  assert.ok(seat, `the game server has a connection for ${path}`);
  return { player, seat };
}

/**
 * Makes a Player over a ReseatSocket, as window.player.
 * @param {Page} page
 * @param {SocketSpec & {url: string}} spec
 */
export async function connect(page, { url, protocols = [], binaryType = 'arraybuffer', options = {} }) {
  await page.evaluate(([where, offer, type, own]) => {
    const { Player, ReseatSocket } = /** @type {any} */ (window);
    const player = new Player(new ReseatSocket(where, offer, own));
    player.socket.binaryType = type;
    Object.assign(window, { player });
  }, /** @type {const} */ ([url, protocols, binaryType, options]));
}

/** The Player that plays in a page, from outside. */
export class RemotePlayer {
  #page;

  /** @param {Page} page */
  constructor(page) {
    this.#page = page;
  }

  /** @returns {Promise<any>} */
  report() {
    return this.#page.evaluate('({ ...player.report(), pageErrors })');
  }

  /**
   * Waits until the player's report is so.
   * @param {string} claim
   * @param {(report: any) => unknown} so
   * @param {number} [ms]
   */
  async until(claim, so, ms) {
    let report;
    await until(claim, async () => so((report = await this.report())), { ms, also: () => report });
    return report;
  }

  /** @param {string} script with `player` @returns {Promise<any>} */
  do(script) {
    return this.#page.evaluate(script);
  }

  /** How often it has come back so far. */
  async resumes() {
    return (await this.report()).count.resume ?? 0;
  }
}

/**
 * Stops both ends, waits until each has what the other has sent, and checks that
 * it came once, whole and in order, over one session that nobody saw break.
 * @param {RemotePlayer} player
 * @param {Seat} seat
 */
export async function settle(player, seat) {
  seat.stop();
  await player.do('player.stop()');
  const ends = async () => ({ page: await player.report(), game: seat.report() });
  const all = ({ page, game }) => page.received >= game.sent && game.received >= page.sent && !page.detached;
  await until('each end has all that the other has sent', async () => all(await ends()), { also: ends });
  const { page, game } = await ends();
  assert.deepEqual(page.faults, [], 'what the page received');
  assert.deepEqual(game.faults, [], 'what the game server received');
  assert.deepEqual([page.received, game.received], [game.sent, page.sent], 'no more than was sent');
  assert.deepEqual(page.pageErrors, [], 'no error in the page');
  assert.deepEqual(
    [page.count.open, page.count.error, page.count.close],
    [1, undefined, undefined],
    'open once, no error, no close',
  );
  assert.equal(game.ended, null, "the game server's connection lives");
  return { page, game };
}

/** How long a cut may take to be noticed, ended and forgotten, in messages that go on. */
const SOME = 8;

/**
 * Waits until messages have come through both ways after a cut.
 * @param {RemotePlayer} player
 * @param {Seat} seat
 */
export async function flows(player, seat) {
  const { received } = await player.report();
  const up = seat.report().received;
  await player.until('messages come', (report) => report.received >= received + SOME);
  await until('messages arrive', () => seat.report().received >= up + SOME);
}
