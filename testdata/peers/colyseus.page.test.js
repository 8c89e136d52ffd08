import { test } from 'node:test';
import { apart } from './lib/apart.js';

// A process can have one server of Colyseus, and its SDK keeps the WebSocket that it finds when it is loaded.

test("once the grace period is over, Colyseus's own reconnection takes its turn", { timeout: 180_000 }, async (t) => {
  await apart(t, new URL('lib/colyseus.js', import.meta.url), 'outstayGrace');
});
