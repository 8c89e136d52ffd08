// @ts-check
// The texts of the two panels.

/** @typedef {import('./panel.js').Words} Words */
/** @typedef {import('./game.js').Game} Game */

/** @type {Words} */
export const reseatWords = {
  looks: {
    connecting: () => ({ pill: 'connecting', veil: 'Connecting', more: '' }),
    playing: () => ({ pill: 'connected', veil: '', more: '' }),
    silent: (game, silence) => ({
      pill: `silent ${silence}`,
      veil: game.serverAway ? 'The game server restarts' : 'Silence',
      more: `${count(game.pending, 'input')} kept for ${seat(game)}`,
    }),
    away: (game) => ({
      pill: 'reconnecting',
      veil: `Reconnecting to ${seat(game)}`,
      more: `attempt ${game.attempt}, ${count(game.pending, 'input')} kept`,
    }),
    lost: (game) => ({
      pill: 'session over',
      veil: lossTitle(game),
      more: game.full ? 'trying again' : 'a new session in a moment',
    }),
  },
  seated: (game) => {
    if (game.restarted) return `The game server was restarted. Still in seat ${game.seat} with ${points(game.score)}.`;
    if (game.totals.seatsLost > 0) return `A new session in seat ${game.seat}. ${ended(game)}`;
    if (game.reloaded) return `The page was reloaded. Still in seat ${game.seat} with ${points(game.score)}.`;
    return `Playing in seat ${game.seat}. Now cut the connection.`;
  },
  silent: (game) =>
    game.serverAway
      ? reseatWords.serverAway(game)
      : `No messages arrive. The game continues, and ${seat(game)} is kept.`,
  serverAway: (game) => `The game server is away. The gateway dials it again; ${seat(game)} and your inputs are kept.`,
  heardAgain: (game, silence) => `No messages for ${silence}. Still in seat ${game.seat} with ${points(game.score)}.`,
  away: (game) => `No connection. Reconnecting to ${seat(game)}; your inputs are kept.`,
  back: (game) => {
    const { lastBackMs, lastReplay, lastSkipped } = game.totals;
    return `No messages for ${time(lastBackMs ?? 0)}. Back in seat ${game.seat} with ${points(game.score)}, ${(lastReplay ?? 0).toLocaleString('en')} replayed${skippedToo(lastSkipped)}.`;
  },
  lost: (game) => ended(game),
};

/** @type {Words} */
export const plainWords = {
  looks: {
    connecting: () => ({ pill: 'connecting', veil: 'Connecting', more: '' }),
    playing: () => ({ pill: 'connected', veil: '', more: '' }),
    silent: (game, silence) => ({
      pill: `silent ${silence}`,
      veil: 'Silence',
      more: `${count(game.pending, 'input')} sent, perhaps lost`,
    }),
    away: () => ({ pill: 'reconnecting', veil: 'Connection lost', more: '' }),
    lost: (game) => ({ pill: 'disconnected', veil: lossTitle(game), more: lossMore(game) }),
  },
  seated: (game) =>
    game.totals.seatsLost > 0
      ? `A new player in seat ${game.seat} with 0 points. ${lossText(game)}`
      : `Playing in seat ${game.seat}, steered by the same inputs.`,
  silent: () => 'No messages arrive.',
  serverAway: () => '', // only ReseatSocket reports it
  heardAgain: (game, silence) => `No messages for ${silence}. This time the old connection recovered.`,
  away: () => 'Connection lost.',
  back: (game) => `Back in seat ${game.seat}.`,
  lost: (game) => `Connection lost. ${lossText(game)}`,
};

/** @param {number} n @param {string} what */
export function count(n, what) {
  return `${n.toLocaleString('en')} ${what}${n === 1 ? '' : 's'}`;
}

/** What follows the number of replayed messages where newer ones have replaced others. @param {number} skipped */
export function skippedToo(skipped) {
  return skipped > 0 ? `, ${skipped.toLocaleString('en')} skipped` : '';
}

/** @param {number} ms */
export function seconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}

/** @param {number} ms */
export function time(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : seconds(ms);
}

/** One's own seat, before the welcome too. @param {Game} game */
function seat(game) {
  return game.seat ? `seat ${game.seat}` : 'your seat';
}

/** @param {number} score */
function points(score) {
  return count(score, 'point');
}

/** @param {Game} game */
function lossTitle({ lastLoss, full }) {
  if (full) return 'The arena is full';
  return lastLoss.seat ? `Seat ${lastLoss.seat} is gone` : 'No connection';
}

/** @param {Game} game */
function lossMore({ lastLoss, full }) {
  if (full) return 'trying again';
  return lastLoss.seat ? `${points(lastLoss.score)} lost` : 'trying again';
}

/** @param {Game} game */
function lossText({ lastLoss }) {
  return `Seat ${lastLoss.seat} and its ${points(lastLoss.score)} are gone.`;
}

/** @param {Game} game */
function ended({ lastLoss }) {
  const why = lastLoss.reason ? `${lastLoss.code} ${lastLoss.reason}` : `code ${lastLoss.code}`;
  return `The session in seat ${lastLoss.seat} has ended (${why}).`;
}
