import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tenCuts } from './lib/cuts.js';
import { startGateway } from './lib/gateway.js';
import { flows, play } from './lib/graphql.js';

// The recipe for graphql-ws: ReseatSocket as its webSocketImpl.

/** The gateway crashes, and another one takes its place. */
async function restart(t, { gateway, flags, cwd, relay }) {
  await gateway.stop();
  const next = await startGateway(t, flags, cwd);
  relay.leadTo(next.addr);
}

test('ten cuts go unnoticed', { timeout: 180_000 }, async (t) => {
  const world = await play(t);
  await tenCuts(world, flows(world));
  assert.deepEqual(world.clientEvents, ['connecting', 'opened', 'connected']);
  assert.deepEqual(world.serverEvents, ['connect']);
  assert.equal(world.game.server.handshakes, 1);
});

test('a gateway that restarts with its key is a lost connection, which graphql-ws takes up again', { timeout: 180_000 }, async (t) => {
  const world = await play(t);
  const came = new Promise((done) => (world.onDown = done));
  const again = world.game.feed.nextReader();
  await restart(t, world);
  await again;
  world.game.feed.push({ n: 1, filler: 'again' });
  assert.deepEqual({ ...await came }, { n: 1, filler: 'again' });
  assert.deepEqual(world.clientEvents, ['connecting', 'opened', 'connected', 'closed', 'connecting', 'opened', 'connected']);
});

test('without a key file a restart is final: graphql-ws takes 4401 for a login that failed', { timeout: 180_000 }, async (t) => {
  const world = await play(t, { withKey: false });
  await restart(t, world);
  const { code } = await world.ended;
  assert.equal(code, 4401);
  assert.ok(!world.clientEvents.slice(3).includes('connecting'));
});

test('a silence that begins before connection_init has arrived makes graphql-ws connect again', { timeout: 180_000 }, async (t) => {
  const { client, relay, game, clientEvents } = await play(t);
  const codes = [];
  const opened = new Promise((done) => client.on('opened', done));
  const again = game.feed.nextReader();
  client.terminate();
  await opened;
  const release = relay.hold(['up']);
  await new Promise((done) => client.on('closed', ({ code }) => done(codes.push(code))));
  release();
  await again;
  assert.deepEqual(codes, [4408]);
  assert.deepEqual(clientEvents.slice(3), ['closed', 'connecting', 'opened', 'closed', 'connecting', 'opened', 'connected']);
});
