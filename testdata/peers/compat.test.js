import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { describe, test as untimed } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { startGateway } from '../../web/e2e/support/gateway.js';
import { Relay } from '../../web/e2e/support/relay.js';
import { tenCuts } from './lib/cuts.js';
import { openServer } from './lib/server.js';
import { Tap } from './lib/tap.js';
import { detached, eventually, outage, silence } from './lib/world.js';
import { flows } from './lib/ws.js';

// Browser clients of earlier versions, as testdata/compat keeps them, and the present gateway:
// what docs/compatibility.md promises.

const OLD = new URL('../compat/', import.meta.url);
const CLIENTS = readdirSync(OLD).filter((name) => name.endsWith('.mjs'));

const test = (name, run) => untimed(name, { timeout: 180_000 }, run);

let copies = 0;

/** A copy of an old client of its own, since the tap changes it. @param {string} client */
const load = async (client) => (await import(`${new URL(client, OLD)}?${++copies}`)).ReseatSocket;

/**
 * A player with an old client, a game server, and the gateway between them.
 * @param {import('node:test').TestContext} t
 * @param {string} client
 * @param {string[]} [flags]
 */
async function play(t, client, flags = []) {
  const ReseatSocket = await load(client);
  const tap = new Tap();
  tap.attach(ReseatSocket);
  const server = await openServer(t);
  const joined = new WebSocketServer({ server });
  const first = once(joined, 'connection');
  const gateway = await startGateway(t, '--upstream', `ws://${server.addr}`, ...flags);
  const relay = await Relay.start(t, gateway.host);
  const socket = new ReseatSocket(`ws://${relay.host}/match/7`, ['chat.v2'], { WebSocket });
  socket.binaryType = 'arraybuffer';
  t.after(async () => {
    socket.close();
    await tap.until(() => tap.closed);
  });
  await tap.until(() => tap.events.includes('open'));
  const [game] = await first;
  const want = () => assert.deepEqual([tap.events, socket.protocol], [['open'], 'chat.v2']);
  return { gateway, relay, tap, server, joined, game, socket, flows: flows(socket, game), want };
}

assert.ok(CLIENTS.length > 0);
for (const client of CLIENTS) describe(client, { concurrency: true }, () => {
  test('ten cuts go unnoticed', async (t) => tenCuts(await play(t, client)));

  test('a game server that is dialled anew, --disconnect hard', async (t) => {
    const { socket, joined, tap, gateway, ...world } = await play(t, client, ['--disconnect', 'hard']);
    const [up] = world.flows;
    for (let i = 1, { game } = world; i <= 3; i++) {
      await up.one();
      const [closed, redialled] = [once(game, 'close'), once(joined, 'connection')];
      assert.equal(await gateway.disconnectAll(), 1, 'sessions disconnected');
      const [code, reason] = await closed;
      assert.deepEqual([code, String(reason)], [1001, 'disconnected']);
      [game] = await redialled;
      game.on('message', (data) => up.read(data));
      await up.one();
      await tap.until(() => tap.resumes === i && tap.attached);
      game.send(`from game ${i}`);
      await tap.until(() => tap.came.get(socket)?.at(-1) === `from game ${i}`);
    }
    assert.deepEqual([tap.events, up.faults], [['open'], []]);
  });

  test('short timeouts leave a client alone that lives, and a silent connection is replaced', async (t) => {
    const world = await play(t, client, ['--heartbeat', '2s', '--answer-timeout', '2s']);
    const { flows, gateway, relay, tap } = world;
    for (const flow of flows) flow.beat(20);
    await flows[1].progress(150); // 3 seconds, busy
    await Promise.all(flows.map((flow) => flow.stop()));
    const answers = () => gateway.metric('reseat_client_rtt_seconds_count');
    const before = await answers();
    await eventually(async () => (await answers()) >= before + 3); // idle, for longer than a client may leave pings unanswered
    const more = (await answers()) - before;
    assert.ok(more >= 3, `the idle client has answered ${more} pings, want 3`);
    assert.deepEqual([tap.detaches, relay.handshakes], [0, 1]);
    const release = silence(relay, ['up', 'down']);
    await tap.until(() => tap.detaches > 0); // two heartbeats: it knows no faster rule
    release();
    await tap.until(() => tap.resumes > 0 && tap.attached);
    await flows[0].one();
    world.want();
  });

  test('messages that were dropped are counted', async (t) => {
    const world = await play(t, client, ['--buffer-messages', '3', '--overflow', 'drop-oldest']);
    const { socket, tap, game } = world;
    const resumed = once(socket, 'resume');
    await outage(world, async () => {
      await detached(world);
      for (let i = 1; i <= 10; i++) game.send(`tick ${i}`);
      game.ping();
      await once(game, 'pong'); // all of them have been read
    });
    const [{ replay, lost }] = await resumed;
    await tap.until(() => tap.came.get(socket)?.length === replay);
    assert.deepEqual([replay, lost, tap.came.get(socket)], [3, 7, ['tick 8', 'tick 9', 'tick 10']]);
    world.want();
  });

  /** How a session ends: what is done, and the codes and reasons that the player and the game server see. */
  const ENDS = {
    'the page closes': { act: ({ socket }) => socket.close(4000, 'left'), player: /^4000 left$/, game: /^4000 left$/ },
    'the page closes without a code': { act: ({ socket }) => socket.close(), player: /^1000$/, game: /^1000$/ },
    'the page closes while it is away': {
      act: (world) => outage(world, () => detached(world).then(() => world.socket.close(4000, 'left'))),
      player: /^4000 left$/,
      game: /^4000 left$/,
    },
    'the game server closes': { act: ({ game }) => game.close(4001, 'over'), player: /^4001 over$/, game: /^4001$/ },
    'the game server breaks': { act: ({ game }) => game.terminate(), player: /^4502 upstream_lost/, game: /^1006$/ },
    'an operator ends it': {
      act: ({ gateway, socket }) => gateway.post(`/sessions/${socket.session}?code=4002&reason=enough`, 'DELETE'),
      player: /^4410 enough$/,
      game: /^4002 enough$/,
    },
    'the grace period is over': {
      flags: ['--grace', '1s'],
      act: (world) => outage(world, () => once(world.game, 'close')),
      player: /^4404 no_session/,
      game: /^1001 grace period over$/,
    },
    'the gateway drains': { flags: ['--drain', '1s'], act: ({ gateway }) => gateway.post('/drain'), player: /^4503 draining/, game: /^1001/ },
    'another gateway, which does not know the session': {
      act: async ({ t, relay, server }) => {
        relay.leadTo((await startGateway(t, '--upstream', `ws://${server.addr}`)).host);
        relay.reset();
      },
      player: /^4401 bad_token/,
    },
  };
  for (const [name, { flags, act, player, game }] of Object.entries(ENDS)) {
    test(name, async (t) => {
      const world = await play(t, client, flags);
      const left = once(world.game, 'close');
      await act({ t, ...world });
      await world.tap.until(() => world.tap.closed);
      assert.match(world.tap.codes.join(), player);
      if (game) assert.match((await left).join(' ').trim(), game);
      assert.deepEqual(world.tap.events, ['open', 'close']);
    });
  }

  test('a refused first handshake is a failed one', async (t) => {
    const ReseatSocket = await load(client);
    const gateway = await startGateway(t, '--route', '/match/*=ws://127.0.0.1:1');
    const socket = new ReseatSocket(`ws://${gateway.host}/elsewhere`, [], { WebSocket, fallback: false });
    const events = [];
    socket.addEventListener('error', () => events.push('error'));
    const [{ code }] = await once(socket, 'close');
    assert.deepEqual([events, code], [['error'], 1006]);
  });
});
