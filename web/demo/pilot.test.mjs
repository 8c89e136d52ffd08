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

test('the autopilot walks to the nearest gem', () => {
  assert.deepEqual(
    autopilot(
      gameOf(
        [{ x: 0, y: 0 }],
        [
          { x: 500, y: 0 },
          { x: 0, y: 300 },
        ],
      ),
    ),
    { x: 0, y: 1 },
  );
});

test('the autopilot leaves a gem to one who is much nearer', () => {
  const game = gameOf(
    [
      { x: 0, y: 0 },
      { x: 0, y: 290 },
    ],
    [
      { x: 500, y: 0 },
      { x: 0, y: 300 },
    ],
  );
  assert.deepEqual(autopilot(game), { x: 1, y: 0 });
});

test('the autopilot walks to a gem that is not its own rather than nowhere', () => {
  const game = gameOf(
    [
      { x: 0, y: 0 },
      { x: 0, y: 290 },
    ],
    [{ x: 0, y: 300 }],
  );
  assert.deepEqual(autopilot(game), { x: 0, y: 1 });
});

test('of two side by side the lower seat takes the nearest gem, the other the next', () => {
  const game = gameOf(
    [
      { x: 0, y: 0 },
      { x: 0, y: 0 },
    ],
    [
      { x: 0, y: 300 },
      { x: 500, y: 0 },
    ],
  );
  assert.deepEqual(autopilot(game), { x: 0, y: 1 });
  assert.deepEqual(autopilot({ ...game, seat: 2, self: game.players.get(2) }), { x: 1, y: 0 });
});

test('the autopilot stands where there is nothing to do', () => {
  assert.deepEqual(autopilot(gameOf([{ x: 0, y: 0 }], [])), { x: 0, y: 0 });
  assert.deepEqual(autopilot({ ...gameOf([], [{ x: 5, y: 5 }]), self: undefined }), { x: 0, y: 0 });
});
