import assert from 'node:assert/strict';
import { flows, play, settle, startScene } from './scene.js';

/** A tick game: the game server sends, the page may. */
export async function ticking(t, page, { flags = [], up = true } = {}) {
  const scene = await startScene(t, ...flags);
  const { player, seat } = await play(page, scene);
  seat.start(50);
  if (up) await player.do('player.start(70)');
  await player.until('some ticks have come', ({ received }) => received > 20);
  /** Where the page's clock stands. */
  const now = () => player.do('performance.now()');
  return { scene, player, seat, now };
}

/** Plays on for a while, and checks that all came once, over so many handshakes. */
export async function wantOnce({ scene, player, seat }, handshakes) {
  seat.start(50);
  await player.do('player.start(70)');
  await flows(player, seat);
  const { page } = await settle(player, seat);
  assert.equal(scene.game.seats.length, 1, 'connections that the game server ever had');
  assert.equal(scene.relay.handshakes, handshakes, 'handshakes of the page');
  return page;
}
