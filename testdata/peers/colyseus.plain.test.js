import { test } from 'node:test';
import { Client } from '@colyseus/sdk';
import { openColyseus } from './lib/colyseus.js';
import { sameAsDirect } from './lib/direct.js';

// @colyseus/sdk as Node runs it, which knows nothing of Reseat: matchmaking by HTTP, then a
// room by WebSocket.

/** Joins a room, talks, has `leave` end it; resolves when both sides know of it. */
async function visit(game, addr, log, leave) {
  const left = note(game, log);
  const room = await new Client(`ws://${addr}`).create('battle', { ticket: 'good' });
  const gone = new Promise((done) => room.onLeave((code) => done(log.client.push({ left: code }))));
  await talk(room, log);
  leave(room);
  await Promise.all([left, gone]);
}

/** Notes what happens in the room; resolves when a player has left it, or so. */
function note(game, log, event = 'leave') {
  return new Promise((done) => (game.note = (entry) => log.server.push(entry) && entry[event] !== undefined && done(undefined)));
}

async function talk(room, log) {
  const ups = (room.state?.ups ?? 0) + 50;
  for (let n = 1; n <= 50; n++) room.send('up', { n, text: 'x'.repeat(n * 70) });
  while (room.state?.ups !== ups) await new Promise((done) => room.onStateChange.once(done));
  log.client.push({ state: room.state.toJSON() });
  for (const size of [0, 1, 125, 126, 4000]) {
    const echo = new Promise((done) => room.onMessage('bytes', done));
    room.sendBytes('bytes', new Uint8Array(size).fill(size));
    log.client.push({ bytes: Buffer.from(await echo).toString('hex') });
  }
}

test('a visit to a room, and each way to end it', { timeout: 180_000 }, async (t) => {
  const game = await openColyseus(t);
  const leaves = {
    'the player leaves': (room) => room.leave(),
    'the player closes': (room) => room.leave(false),
    'the player is lost': (room) => room.connection.transport.ws.terminate(),
    'the room throws it out': (room) => room.send('throw me out', 4123),
  };
  game.keep = 0.1;
  for (const [how, leave] of Object.entries(leaves)) {
    await t.test(how, (t) => sameAsDirect(t, game.addr, (addr, log) => visit(game, addr, log, leave)));
  }

  game.keep = 20;
  await t.test('a player who was lost comes back by reconnect', (t) => sameAsDirect(t, game.addr, async (addr, log) => {
    const dropped = note(game, log, 'drop');
    const client = new Client(`ws://${addr}`);
    const room = await client.create('battle');
    room.reconnection.enabled = false;
    await talk(room, log);
    room.connection.transport.ws.terminate();
    await dropped;
    const again = await client.reconnect(room.reconnectionToken);
    log.client.push({ same: again.sessionId === room.sessionId });
    const left = note(game, log);
    await again.leave();
    await left;
  }));

  await t.test('a player who was lost is brought back by the library', (t) => sameAsDirect(t, game.addr, async (addr, log) => {
    note(game, log);
    const room = await new Client(`ws://${addr}`).create('battle');
    room.reconnection.minUptime = 0;
    await talk(room, log);
    const back = new Promise((done) => room.onReconnect(done));
    room.onDrop((code) => log.client.push({ dropped: code }));
    room.connection.transport.ws.terminate();
    await back;
    await talk(room, log);
    const left = note(game, log);
    await room.leave();
    await left;
  }));

  await t.test('refusals', (t) => sameAsDirect(t, game.addr, async (addr, log) => {
    const client = new Client(`ws://${addr}`);
    for (const [room, options] of [['no such room', {}], ['battle', { ticket: 'forged' }]]) {
      await client.create(room, options).catch(({ code, message }) => log.client.push({ code, message }));
    }
    log.server.push('nobody came in');
  }));
});
