import assert from 'node:assert/strict';
import { test } from 'node:test';
import { approach, autopilot, heading } from './pilot.js';

/**
 * @param {{x: number, y: number}[]} players the first is one's own
 * @param {{x: number, y: number}[]} gems
 */
function gameOf(players, gems) {
  const seated = players.map((at, i) => ({ seat: i + 1, name: '', wanderer: false, score: 0, ...at }));
  return {
    seat: 1,
    self: seated[0],
    players: new Map(seated.map((player) => [player.seat, player])),
    gems: new Map(gems.map((gem, i) => [i, gem])),
  };
}

test('a heading is 1 long, and nothing once its target is reached', () => {
  assert.deepEqual(heading({ x: 10, y: 10 }, { x: 10, y: 110 }), { x: 0, y: 1 });
  assert.deepEqual(heading({ x: 0, y: 0 }, { x: 30, y: -40 }), { x: 0.6, y: -0.8 });
  assert.deepEqual(heading({ x: 10, y: 10 }, { x: 12, y: 10 }), { x: 0, y: 0 });
});

test('an approach slows down near its target', () => {
  assert.deepEqual(approach({ x: 0, y: 0 }, { x: 200, y: 0 }), { x: 1, y: 0 });
  assert.deepEqual(approach({ x: 0, y: 0 }, { x: 0, y: -30 }), { x: 0, y: -0.5 });
  assert.deepEqual(approach({ x: 0, y: 0 }, { x: 3, y: 0 }), { x: 0, y: 0 });
});

const at = (/** @type {number} */ x, /** @type {number} */ y) => ({ x, y });

/** Where the autopilot walks. @type {[string, ReturnType<typeof at>[], ReturnType<typeof at>[], ReturnType<typeof at>][]} */
const WALKS = [
  ['to the nearest gem', [at(0, 0)], [at(500, 0), at(0, 300)], at(0, 1)],
  ['past a gem that another one is much nearer to', [at(0, 0), at(0, 290)], [at(500, 0), at(0, 300)], at(1, 0)],
  ['to a gem that is not its own rather than nowhere', [at(0, 0), at(0, 290)], [at(0, 300)], at(0, 1)],
  ['nowhere where there is nothing to do', [at(0, 0)], [], at(0, 0)],
];
for (const [where, players, gems, want] of WALKS)
  test(`the autopilot walks ${where}`, () => assert.deepEqual(autopilot(gameOf(players, gems)), want));

test('of two side by side the lower seat takes the nearest gem, the other the next', () => {
  const game = gameOf([at(0, 0), at(0, 0)], [at(0, 300), at(500, 0)]);
  assert.deepEqual(autopilot(game), at(0, 1));
  assert.deepEqual(autopilot({ ...game, seat: 2, self: game.players.get(2) }), at(1, 0));
});

test('a player who has no seat stands', () => {
  assert.deepEqual(autopilot({ ...gameOf([], [at(5, 5)]), self: undefined }), at(0, 0));
});
