import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { tenCuts } from './lib/cuts.js';
import { Flow } from './lib/flow.js';
import { startGateway } from './lib/gateway.js';
import { openGraphQL } from './lib/graphql.js';
import { Page } from './lib/page.js';
import { recipe } from './lib/recipes.js';
import { Relay } from './lib/relay.js';

// The recipe for graphql-ws: ReseatSocket as its webSocketImpl.

const RECIPE = recipe('graphql-ws');

/** The recipe's server, gateway and page, and a subscription that is never over. */
async function play(t, { withKey = true } = {}) {
  const page = new Page(t);
  const cwd = mkdtempSync(join(tmpdir(), 'reseat-'));
  t.after(() => rmSync(cwd, { recursive: true }));
  const game = await openGraphQL(t);
  const flags = RECIPE.flags({ 'localhost:4000': game.addr }, cwd).slice(0, withKey ? undefined : -2);
  const gateway = await startGateway(t, flags, cwd);
  const relay = await Relay.open(t, gateway.addr);
  page.open(`http://${relay.addr}`);
  const serverEvents = [];
  game.note = (entry) => serverEvents.push(Object.keys(entry)[0]);
  const subscribed = game.feed.nextReader();
  const { client } = await page.module(RECIPE.code('js'));
  const clientEvents = [];
  for (const event of ['connecting', 'opened', 'connected', 'closed', 'error']) client.on(event, () => clientEvents.push(event));
  const ended = new Promise((done) => client.subscribe({ query: 'subscription { down { n filler } }' }, {
    next: ({ data }) => world.onDown(data.down),
    error: done,
    complete: () => done('complete'),
  }));
  const world = { page, tap: page.tap, cwd, flags, game, gateway, relay, client, clientEvents, serverEvents, ended, onDown: (_message) => {} };
  page.onLeave(() => client.dispose());
  await subscribed;
  return world;
}

/** The gateway crashes, and another one takes its place. */
async function restart(t, { gateway, flags, cwd, relay }) {
  await gateway.stop();
  const next = await startGateway(t, flags, cwd);
  relay.leadTo(next.addr);
}

/** Messages of a subscription downward, mutations upward. */
function flows(world) {
  const query = 'mutation ($n: Int!, $filler: String!) { up(n: $n, filler: $filler) }';
  const complete = () => {};
  const up = new Flow('up', (n, filler) => world.client.subscribe({ query, variables: { n, filler } }, {
    next: ({ data }) => data.up === n || up.fault(`answer ${data.up} to ${n}`),
    error: (error) => up.fault(`${n}: ${error}`),
    complete,
  }));
  const down = new Flow('down', (n, filler) => world.game.feed.push({ n, filler }));
  world.game.onUp = (n, filler) => up.heard(n, filler);
  world.onDown = ({ n, filler }) => down.heard(n, filler);
  return [up, down];
}

test('ten cuts go unnoticed', { timeout: 60_000 }, async (t) => {
  const world = await play(t);
  await tenCuts(world, flows(world));
  assert.deepEqual(world.clientEvents, ['connecting', 'opened', 'connected']);
  assert.deepEqual(world.serverEvents, ['connect']);
  assert.equal(world.game.server.handshakes, 1);
});

test('a gateway that restarts with its key is a lost connection, which graphql-ws takes up again', { timeout: 60_000 }, async (t) => {
  const world = await play(t);
  const came = new Promise((done) => (world.onDown = done));
  const again = world.game.feed.nextReader();
  await restart(t, world);
  await again;
  world.game.feed.push({ n: 1, filler: 'again' });
  assert.deepEqual({ ...await came }, { n: 1, filler: 'again' });
  assert.deepEqual(world.clientEvents, ['connecting', 'opened', 'connected', 'closed', 'connecting', 'opened', 'connected']);
});

test('without a key file a restart is final: graphql-ws takes 4401 for a login that failed', { timeout: 60_000 }, async (t) => {
  const world = await play(t, { withKey: false });
  await restart(t, world);
  const { code } = await world.ended;
  assert.equal(code, 4401);
  assert.ok(!world.clientEvents.slice(3).includes('connecting'));
});
