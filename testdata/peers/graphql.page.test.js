import assert from 'node:assert/strict';
import { test as untimed } from 'node:test';
import { play } from './lib/graphql.js';
import { silence } from './lib/world.js';

// The recipe for graphql-ws: ReseatSocket as its webSocketImpl.

const test = (name, run) => untimed(name, { timeout: 180_000 }, run);

test('a gateway that restarts with its key is a lost connection, which graphql-ws takes up again', async (t) => {
  const world = await play(t);
  const again = world.feed.nextReader();
  await world.restart();
  await again;
  await world.flows[1].one();
  assert.deepEqual(world.clientEvents, ['connecting', 'opened', 'connected', 'closed', 'connecting', 'opened', 'connected']);
});

test('without a key file a restart is final: graphql-ws takes 4401 for a login that failed', async (t) => {
  const world = await play(t, { bare: true });
  await world.restart();
  assert.equal((await world.ended).code, 4401);
  assert.ok(!world.clientEvents.slice(3).includes('connecting'), String(world.clientEvents));
});

test('a silence that begins before connection_init has arrived makes graphql-ws connect again', async (t) => {
  const { client, relay, feed, clientEvents } = await play(t);
  const opened = new Promise((done) => client.on('opened', done));
  const again = feed.nextReader();
  client.terminate();
  await opened;
  const release = silence(relay, ['up']);
  const { code } = await new Promise((done) => client.on('closed', done));
  release();
  await again;
  assert.equal(code, 4408);
  assert.deepEqual(clientEvents.slice(3), ['closed', 'connecting', 'opened', 'closed', 'connecting', 'opened', 'connected']);
});
