import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { describe, test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { tenCuts } from './lib/cuts.js';
import { Flow } from './lib/flow.js';
import { startGateway } from './lib/gateway.js';
import { Relay } from './lib/relay.js';
import { openServer } from './lib/server.js';
import { Tap } from './lib/tap.js';
import { flows } from './lib/ws.js';

// Browser clients of earlier versions, as testdata/compat keeps them, and the present gateway:
// what docs/compatibility.md promises.

const OLD = new URL('../compat/', import.meta.url);
const CLIENTS = readdirSync(OLD).filter((name) => name.endsWith('.mjs'));

let copies = 0;

/**
 * A player with an old client, a game server, and the gateway between them.
 * @param {import('node:test').TestContext} t
 * @param {string} client
 * @param {string[]} [flags]
 */
async function play(t, client, flags = []) {
  const { ReseatSocket } = await import(`${new URL(client, OLD)}?${++copies}`); // of its own, since the tap changes it
  const tap = new Tap();
  tap.attach(ReseatSocket);
  const server = await openServer(t);
  const games = [];
  const joined = new WebSocketServer({ server });
  joined.on('connection', (game) => games.push(game));
  const gateway = await startGateway(t, ['--upstream', `ws://${server.addr}`, ...flags]);
  const relay = await Relay.open(t, gateway.addr);
  const first = once(joined, 'connection');
  const socket = new ReseatSocket(`ws://${relay.addr}/match/7`, ['chat.v2'], { WebSocket });
  socket.binaryType = 'arraybuffer';
  await tap.until(() => tap.events.includes('open'));
  const [game] = await first;
  t.after(async () => {
    socket.close();
    await tap.until(() => tap.closed);
  });
  return { gateway, relay, tap, server, joined, games, game, socket };
}

const post = async (gateway, path, method = 'POST') => assert.ok((await fetch(`${gateway.admin}/api/v1${path}`, { method })).ok, path);

assert.ok(CLIENTS.length > 0);
for (const client of CLIENTS) describe(client, { concurrency: true }, () => {
  for (const driver of ['net', 'auto']) {
    test(`ten cuts go unnoticed, driver ${driver}`, { timeout: 180_000 }, async (t) => {
      const world = await play(t, client, ['--driver', driver]);
      await tenCuts(world, flows(world));
      assert.equal(world.server.handshakes, 1);
      assert.equal(world.socket.protocol, 'chat.v2');
    });
  }

  test('a game server that is dialled anew, --disconnect hard', { timeout: 180_000 }, async (t) => {
    const world = await play(t, client, ['--disconnect', 'hard']);
    const up = new Flow('up', (n, filler) => world.socket.send(`${n} ${filler}`));
    const heard = (game) => game.on('message', (data) => {
      const [, n, filler] = /^(\d+) ([^]*)$/.exec(String(data));
      up.heard(Number(n), filler);
    });
    heard(world.game);
    world.joined.on('connection', heard);
    for (let i = 1; i <= 3; i++) {
      await up.one();
      const closed = once(world.games.at(-1), 'close');
      assert.equal(await world.gateway.disconnect(), 1);
      const [code, reason] = await closed;
      assert.deepEqual([code, String(reason)], [1001, 'disconnected']);
      await up.one();
      await world.tap.until(() => world.tap.resumes === i && world.tap.attached);
      world.games.at(-1).send(`from game ${i}`);
      await world.tap.until(() => world.tap.came.get(world.socket)?.at(-1) === `from game ${i}`);
    }
    assert.equal(world.games.length, 4);
    assert.deepEqual([world.tap.events, up.faults], [['open'], []]);
  });

  test('short timeouts leave a client alone that lives, and a silent connection is replaced', { timeout: 180_000 }, async (t) => {
    const world = await play(t, client, ['--heartbeat', '2s', '--answer-timeout', '2s']);
    const [up, down] = flows(world);
    up.beat(20);
    down.beat(20);
    await down.progress(150); // 3 seconds, busy
    await Promise.all([up.stop(), down.stop()]);
    await new Promise((done) => setTimeout(done, 5000)); // idle, for longer than a client that leaves pings unanswered may be
    assert.deepEqual([world.tap.detaches, world.relay.accepted], [0, 1]);
    const release = world.relay.hold(['up', 'down']);
    await world.tap.until(() => world.tap.detaches > 0); // two heartbeats: it knows no faster rule
    release();
    await world.tap.until(() => world.tap.resumes > 0 && world.tap.attached);
    world.socket.send('still here');
    assert.equal(String((await once(world.game, 'message'))[0]), 'still here');
    assert.deepEqual(world.tap.events, ['open']);
  });

  test('messages that were dropped are counted', { timeout: 180_000 }, async (t) => {
    const world = await play(t, client, ['--buffer-messages', '3', '--overflow', 'drop-oldest']);
    world.relay.goDown();
    await world.tap.until(() => !world.tap.attached);
    for (let i = 1; i <= 10; i++) world.game.send(`tick ${i}`);
    world.game.ping();
    await once(world.game, 'pong'); // all of them have been read
    const resumed = once(world.socket, 'resume');
    world.relay.comeUp();
    const [{ replay, lost }] = await resumed;
    await world.tap.until(() => world.tap.came.get(world.socket)?.length === replay);
    assert.deepEqual([replay, lost], [3, 7]);
    assert.deepEqual(world.tap.came.get(world.socket), ['tick 8', 'tick 9', 'tick 10']);
    assert.deepEqual(world.tap.events, ['open']);
  });

  const CLEAN = ['open', 'close'];
  /** How a session ends: what is done, and what the player and the game server see of it. */
  const ENDS = {
    'the page closes': { act: ({ socket }) => socket.close(4000, 'left'), events: CLEAN, code: '4000 left', game: '4000 left' },
    'the page closes without a code': { act: ({ socket }) => socket.close(), events: CLEAN, code: '1000', game: '1000' },
    'the page closes while it is away': {
      act: async ({ socket, relay, tap }) => {
        relay.goDown();
        await tap.until(() => !tap.attached);
        socket.close(4000, 'left');
        relay.comeUp();
      },
      events: CLEAN,
      code: '4000 left',
      game: '4000 left',
    },
    'the game server closes': { act: ({ game }) => game.close(4001, 'over'), events: CLEAN, code: '4001 over', game: '4001' },
    'the game server breaks': { act: ({ game }) => game.terminate(), events: CLEAN, code: /^4502 upstream_lost/, game: '1006' },
    'an operator ends it': {
      act: async ({ gateway, socket }) => post(gateway, `/sessions/${socket.session}?code=4002&reason=enough`, 'DELETE'),
      events: CLEAN,
      code: '4410 enough',
      game: '4002 enough',
    },
    'the grace period is over': {
      flags: ['--grace', '1s'],
      act: async ({ relay, game }) => {
        relay.goDown();
        await once(game, 'close');
        relay.comeUp();
      },
      events: CLEAN,
      code: /^4404 no_session/,
      game: '1001 grace period over',
    },
    'the gateway drains': { flags: ['--drain', '1s'], act: ({ gateway }) => post(gateway, '/drain'), events: CLEAN, code: /^4503 draining/, game: /^1001/ },
  };
  for (const [name, { flags, act, events, code, game: seen }] of Object.entries(ENDS)) {
    test(name, { timeout: 180_000 }, async (t) => {
      const world = await play(t, client, flags);
      const left = once(world.game, 'close');
      await act(world);
      const [ended, reason] = await left;
      await world.tap.until(() => world.tap.closed);
      const match = (got, want) => (want instanceof RegExp ? assert.match(got, want) : assert.equal(got, want));
      match(world.tap.codes.join(), code);
      match(`${ended} ${reason}`.trim(), seen);
      assert.deepEqual(world.tap.events, events);
    });
  }

  test('a gateway that has lost its sessions says so', { timeout: 180_000 }, async (t) => {
    const world = await play(t, client);
    const other = await startGateway(t, ['--upstream', `ws://${world.server.addr}`]);
    world.relay.leadTo(other.addr);
    world.relay.cut();
    await world.tap.until(() => world.tap.closed);
    assert.match(world.tap.codes.join(), /^4401 bad_token/);
    assert.deepEqual(world.tap.events, CLEAN);
  });

  test('a refused first handshake is a failed one', { timeout: 180_000 }, async (t) => {
    const { ReseatSocket } = await import(`${new URL(client, OLD)}?${++copies}`);
    const gateway = await startGateway(t, ['--route', '/match/*=ws://127.0.0.1:1']);
    const socket = new ReseatSocket(`ws://${gateway.addr}/elsewhere`, [], { WebSocket, fallback: false });
    const events = [];
    socket.addEventListener('error', () => events.push('error'));
    const [{ code }] = await once(socket, 'close');
    assert.deepEqual([events, code], [['error'], 1006]);
  });
});
