import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Arena } from './arena.js';

Object.assign(globalThis, {
  devicePixelRatio: 1,
  ResizeObserver: class {
    observe() {}
  },
  matchMedia: () => Object.assign(new EventTarget(), { matches: false }),
  getComputedStyle: () => ({ getPropertyValue: () => '' }),
});

test('an effect that is newer than the frame is drawn at its beginning', (t) => {
  t.mock.method(performance, 'now', () => 1_000);
  /** @type {number[]} */
  const radii = [];
  const context = new Proxy(
    { arc: (/** @type {any[]} */ ...[, , r]) => radii.push(r), measureText: () => ({ width: 10 }) },
    { get: (own, name) => own[name] ?? (() => {}), set: () => true },
  );
  const box = () => ({ left: 0, top: 0, width: 1200, height: 675 });
  const canvas = { getContext: () => context, getBoundingClientRect: box, width: 0, height: 0 };
  const world = { width: 1200, height: 675 };
  const game = Object.assign(new EventTarget(), { world, seat: 1, players: new Map(), gems: new Map() });
  const arena = new Arena(/** @type {any} */ (canvas), /** @type {any} */ (game));
  game.dispatchEvent(new CustomEvent('take', { detail: { x: 10, y: 10, by: 1 } }));
  arena.draw(500); // the time of a frame that a busy machine shows late
  assert.equal(radii.at(-1), 18, "the ring has a gem's radius");
});
