// @ts-check
// The numbers below the panels, and the same for scripts.

/** @typedef {import('./game.js').Game} Game */

/**
 * The counts of a game over all its connections. Times are in ms.
 * @param {Game} game
 * @param {number} cuts
 * @param {boolean} cutOpen whether the newest of them is not over
 */
export function report(game, cuts, cutOpen) {
  const { down, up, totals } = game;
  return {
    missed: down.missed,
    twice: down.twice,
    outOfOrder: down.late,
    received: down.got,
    up: {
      sent: game.sent,
      pending: game.pending,
      received: up.got,
      missed: up.missed,
      twice: up.twice,
      outOfOrder: up.late,
    },
    cuts,
    cutOpen,
    drops: totals.drops,
    resumes: totals.resumes,
    lastResumeMs: totals.lastBackMs,
    lastReplay: totals.lastReplay,
    replayed: totals.replayed,
    lost: totals.dropped,
    lastSkipped: totals.lastSkipped,
    skipped: down.skipped ?? 0,
    seatsLost: totals.seatsLost,
    pointsLost: totals.pointsLost,
    updatesMissed: totals.updatesMissed,
    inputsDropped: totals.inputsDropped,
    phase: game.phase,
    seat: game.seat,
    score: game.score,
    at: game.self ? { x: game.self.x, y: game.self.y } : null,
    tick: game.tick,
    session: game.session,
  };
}

/** @typedef {ReturnType<typeof report>} Report */

/**
 * Shows the counts of the game over ReseatSocket.
 * @param {Report} proof
 */
export function showProof(proof) {
  const { up } = proof;
  show('reseat-missed', proof.missed + up.missed, true);
  show('reseat-twice', proof.twice + up.twice, true);
  show('reseat-out-of-order', proof.outOfOrder + up.outOfOrder, true);
  show('reseat-missed-ways', ways(proof.missed, up.missed));
  show('reseat-twice-ways', ways(proof.twice, up.twice));
  show('reseat-out-of-order-ways', ways(proof.outOfOrder, up.outOfOrder));
  show('reseat-received', proof.received);
  show('reseat-sent', up.received);
  show('reseat-cuts', proof.cuts);
  show('reseat-survived', survived(proof));
  show('reseat-back-ms', milliseconds(proof.lastResumeMs));
  show('reseat-back-unit', proof.lastResumeMs === null ? '' : 'ms, same seat');
  show('reseat-replayed', proof.lastReplay ?? '–');
  const skipped = proof.lastSkipped > 0 && `${number(proof.lastSkipped)} skipped`;
  show('reseat-replayed-when', proof.lastReplay === null ? '' : skipped || 'last time');
}

/**
 * Shows the losses of the game over the plain WebSocket.
 * @param {Report} losses
 * @param {{seat: number, score: number}} last
 */
export function showLosses(losses, last) {
  show('plain-seats-lost', losses.seatsLost, true);
  show('plain-points-lost', losses.pointsLost, true);
  show('plain-updates-missed', losses.updatesMissed, true);
  show('plain-inputs-dropped', losses.inputsDropped, true);
  show('plain-last-seat', last.seat ? `last: seat ${last.seat}` : '');
  show('plain-last-points', last.seat ? `last: ${last.score}` : '');
  show('plain-cuts', losses.cuts);
  show('plain-survived', survived(losses));
  show('plain-back-ms', milliseconds(losses.lastResumeMs));
  show('plain-back-unit', losses.lastResumeMs === null ? '' : 'ms, new seat');
}

/**
 * Writes into the element with a test id.
 * @param {string} id
 * @param {string | number} value
 * @param {boolean} [judged] whether 0 is good and anything else bad
 */
function show(id, value, judged = false) {
  const element = /** @type {HTMLElement} */ (document.querySelector(`[data-testid="${id}"]`));
  const text = typeof value === 'number' ? number(value) : value;
  if (element.textContent !== text) element.textContent = text;
  if (judged) element.dataset.verdict = value === 0 ? 'good' : 'bad';
}

/** @param {number} n */
function number(n) {
  return n.toLocaleString('en');
}

/** How many cuts the seat has come through. @param {Report} report */
function survived({ cuts, seatsLost, cutOpen }) {
  return `${number(Math.max(0, cuts - seatsLost - Number(cutOpen)))} survived`;
}

/** @param {number} down @param {number} up */
function ways(down, up) {
  return `${number(down)} in, ${number(up)} out`;
}

/** @param {number | null} ms */
function milliseconds(ms) {
  return ms === null ? '–' : String(Math.round(ms));
}
