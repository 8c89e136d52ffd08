// Silence: for 20 seconds nothing arrives, though every TCP connection stays open. It begins
// at the worst moment of each library's own watchdogs, and everything else is as the recipe
// and the libraries have it by default.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { noticed, wantUntouched } from './cuts.js';

/** Whose bytes do not arrive, as the directions in which the network is silent. */
export const SIDES = { "the client's": ['up'], "the gateway's": ['down'], 'either side': ['up', 'down'] };

/** 20 s, and a little: timers are late by some milliseconds. */
const SILENCE = 20_500;

/** When players who had been quiet begin to talk again. */
const TALK_AGAIN = 18_500;

/** A game's traffic: a message each way every so often, of 750 bytes on average. It does not rest in a silence. */
const BEAT = 33;

/** A session this old has been pinged by the gateway, which knows its round trip and its socket. */
const A_WHILE = 16_000;

/** Messages that come each way before an end of the silence, and after the other. */
const AROUND = 30;

/**
 * @typedef {object} Library
 * @property {(t: { after: (last: () => any) => void }) => Promise<any>} open a world by the recipe, with `flows`, up and down,
 *   `say`, which asks for an answer during the silence, if that is of interest, and `want`, which fails where either end
 *   has noticed anything
 * @property {Record<string, (world: any) => Promise<void>>} moments resolve at the worst moment, within the same turn of the
 *   event loop: what was sent in it has not got anywhere
 */

/** The server's own ping is on its way. @param {any} ws its end of a connection, of the library `ws` */
function nextPing(ws) {
  return new Promise((done) => {
    const { ping } = ws;
    ws.ping = (...args) => {
      ws.ping = ping;
      ping.apply(ws, args);
      done(undefined);
    };
  });
}

/**
 * What makes Reseat slow to notice an idle line: it was busy, and a pause was found harmless
 * (a ping was answered), so that none is suspected for half a minute. A message up that is
 * acked, and a last one down: now nobody owes anything, and silence is counted from here.
 *
 * @param {any} world
 * @param {number} until milliseconds of performance.now()
 */
async function talkAndPause({ flows }, until) {
  const [up, down] = flows;
  while (performance.now() < until - 9_000) {
    await Promise.all([up.one(), down.one()]);
    await sleep(500);
  }
  await sleep(until - 1_500 - performance.now());
  await up.one();
  await sleep(until - performance.now());
  await down.one();
}

/** Starts the traffic, or goes on with it; resolves when some of it has come. */
async function traffic({ flows }) {
  for (const flow of flows) flow.beat(BEAT);
  await Promise.all(flows.map((flow) => flow.progress(AROUND)));
}

/**
 * `ws`. It watches nothing by itself.
 * @type {Library}
 */
const plain = {
  async open(t) {
    const { RECIPE, flows, play } = await import('./ws.js');
    const world = await play(t, (page) => page.module(RECIPE.code('js')));
    return { ...world, flows: flows(world), want: () => assert.deepEqual(world.unwanted, []) };
  },
  moments: {
    async 'amid traffic'(world) {
      await sleep(A_WHILE);
      await traffic(world);
    },
  },
};

/**
 * Socket.IO. The server closes a client that has not answered its ping for pingTimeout, 20 s.
 * The client closes when it has had no ping for pingInterval + pingTimeout, 45 s. Both have
 * 20 s left in the moment when a ping has been sent and has not arrived.
 * @type {Library}
 */
const socketIO = {
  async open(t) {
    const { flows, play, wantUnnoticed } = await import('./socketio.js');
    const world = await play(t);
    const due = world.times.opened + 25_000;
    return { ...world, due, flows: flows(world), want: () => wantUnnoticed(world) };
  },
  moments: {
    async 'a ping of the server is on its way, after a pause'({ peer, due, ...world }) {
      const ping = new Promise((done) => peer.conn.on('packetCreate', ({ type }) => type === 'ping' && done()));
      await talkAndPause(world, due - 300);
      await ping;
    },
    async 'a ping of the server is on its way, amid traffic'({ peer, due, ...world }) {
      const ping = new Promise((done) => peer.conn.on('packetCreate', ({ type }) => type === 'ping' && done()));
      await sleep(due - 2_000 - performance.now());
      await Promise.all([ping, traffic(world)]);
    },
    async 'the answer to a ping is on its way, after a pause'({ socket, due, ...world }) {
      const answer = new Promise((done) => socket.io.engine.on('ping', done));
      await talkAndPause(world, due - 300);
      await answer;
    },
  },
};

/**
 * Colyseus. The server pings every 3 s (pingInterval), and closes a client at the third ping
 * after two without an answer (pingMaxRetries): these are Pings of the WebSocket protocol.
 * The client watches nothing, but reconnects by itself after a close, and takes a request()
 * for failed after 10 s.
 * @type {Library}
 */
const colyseus = {
  async open(t) {
    const [{ RECIPE, flows, openColyseus, playground, watch }, { Page }] = await Promise.all([import('./colyseus.js'), import('./page.js')]);
    const page = new Page(t);
    const game = await openColyseus(t);
    const world = await playground(t, page, game);
    const { room } = await page.run(RECIPE.code('html'), { 'game.js': RECIPE.code('game.js') });
    page.onLeave(() => room.leave());
    const unwanted = watch(world, room);
    const say = async () => assert.equal(await room.request('double', 21, { timeout: 30_000 }), 42);
    return { ...world, flows: flows(world, room), say, want: () => assert.deepEqual(unwanted, []) };
  },
  moments: {
    async 'a ping of the server is on its way, after a pause'(world) {
      const [ws] = world.game.transport.wss.clients;
      await talkAndPause(world, performance.now() + A_WHILE);
      await nextPing(ws);
    },
    async 'a ping of the server is on its way, amid traffic'(world) {
      const [ws] = world.game.transport.wss.clients;
      await sleep(A_WHILE);
      await traffic(world);
      await nextPing(ws);
    },
  },
};

/**
 * graphql-ws. The server pings every 12 s (keepAlive of useServer), and closes a client that
 * has not answered 12 s later: these are Pings of the WebSocket protocol. The client watches
 * nothing by default.
 * @type {Library}
 */
const graphql = {
  async open(t) {
    const { flows, play } = await import('./graphql.js');
    const world = await play(t);
    const want = () => {
      assert.deepEqual(world.clientEvents, ['connecting', 'opened', 'connected']);
      assert.deepEqual(world.serverEvents, ['connect']);
    };
    return { ...world, server: world.game.server, flows: flows(world), want };
  },
  moments: {
    async 'a ping of the server is on its way, after a pause'(world) {
      const [ws] = world.game.wss.clients;
      await nextPing(ws); // the first after 12 s, this one after 24
      await Promise.all([nextPing(ws), talkAndPause(world, performance.now() + 11_500)]);
    },
    async 'a ping of the server is on its way, amid traffic'(world) {
      const [ws] = world.game.wss.clients;
      await nextPing(ws);
      await Promise.all([nextPing(ws), sleep(10_000).then(() => traffic(world))]);
    },
  },
};

/**
 * y-websocket. The client closes when it has received nothing for 30 s, which it looks at
 * every 3 s. What it receives on a quiet document is the echo of its own awareness: that is
 * renewed when it is 15 s old, which is looked at every 3 s, so up to 18 s after the last
 * one. Then there are 12 s left. The server pings every 30 s, by the WebSocket protocol, and
 * closes a client that has not answered 30 s later.
 * @type {Library}
 */
const yjs = {
  async open(t) {
    const { OPENING, flow, play, wantSameTraffic } = await import('./yjs.js');
    const world = await play(t);
    const [a, b] = world.desks;
    const want = () => {
      for (const { events } of world.desks) assert.deepEqual(events, OPENING.slice(OPENING.length - events.length));
      assert.deepEqual(world.serverEvents, []);
      assert.deepEqual(a.list.toJSON(), b.list.toJSON());
      for (const { provider } of world.desks) assert.equal(provider.awareness.getStates().size, 2, 'who is there');
      wantSameTraffic(world);
    };
    return { ...world, flows: [flow(a, b), flow(b, a)], want };
  },
  moments: {
    async 'the awareness of the client is renewed, on a quiet document'({ desks }) {
      await sleep(200);
      for (const { provider } of desks) provider.awareness.setLocalState({ name: 'ada' }); // a little late for the fifth look
      const [{ provider: { awareness } }] = desks;
      await new Promise((done) => awareness.on('update', (_changes, origin) => origin === 'local' && done(undefined)));
    },
    async 'amid traffic'(world) {
      await sleep(A_WHILE);
      await traffic(world);
    },
  },
};

/**
 * boardgame.io: Socket.IO, whose server pings every 10 s and closes a client that has not
 * answered for 20 s; the client closes when it has had no ping for both together.
 * @type {Library}
 */
const boardgame = {
  async open(t) {
    const { flows, play, wantUnnoticed } = await import('./boardgame.js');
    const world = await play(t);
    return { ...world, flows: flows(world), want: () => wantUnnoticed(world) };
  },
  moments: {
    async 'a ping of the server is on its way, after a pause'(world) {
      const { nextPing } = await import('./boardgame.js');
      await nextPing(world);
      await talkAndPause(world, performance.now() + 9_500);
      await nextPing(world);
    },
    async 'a ping of the server is on its way, amid traffic'(world) {
      const { nextPing } = await import('./boardgame.js');
      await nextPing(world);
      await Promise.all([nextPing(world), sleep(8_000).then(() => traffic(world))]);
    },
  },
};

/**
 * MQTT.js and aedes. The client pings after `keepalive`, 60 s. It closes when no answer has come
 * 90 s after the last one, and the broker when it has received nothing for as long: both have
 * 30 s left in the moment when the ping has been sent and has not arrived.
 * @type {Library}
 */
const mqtt = {
  async open(t) {
    const { flows, play, wantUnnoticed } = await import('./mqtt.js');
    const world = await play(t);
    return { ...world, flows: flows(world), want: () => wantUnnoticed(world) };
  },
  moments: {
    async 'a PINGREQ of the client is on its way, after a pause'(world) {
      const { nextPing } = await import('./mqtt.js');
      await nextPing(world);
    },
    async 'amid traffic'(world) {
      await sleep(A_WHILE);
      await traffic(world);
    },
  },
};

/** @type {Record<string, Library>} */
export const LIBRARIES = { ws: plain, 'Socket.IO': socketIO, Colyseus: colyseus, 'boardgame.io': boardgame, 'graphql-ws': graphql, 'y-websocket': yjs, MQTT: mqtt };

/**
 * The silence goes unnoticed: the same seat, every message once and in order, and not an
 * event of the library's on either side.
 *
 * @param {{ after: (last: () => any) => void }} t
 * @param {string} name of the library
 * @param {string} moment
 * @param {string} side
 */
export async function outlast(t, name, moment, side) {
  const library = LIBRARIES[name];
  const world = await library.open(t);
  const session = async () => (await world.gateway.sessions()).map(({ id }) => id).sort();
  const before = { session: await session(), handshakes: world.server.handshakes };
  await library.moments[moment](world);
  const release = world.relay.hold(SIDES[side]);
  await Promise.race([beSilent(world, SIDES[side], release), noticed(world.tap)]);
  world.want();
  await wantUntouched(world);
  assert.deepEqual({ session: await session(), handshakes: world.server.handshakes }, before);
}

/** @param {any} world @param {('up' | 'down')[]} ways @param {() => void} release */
async function beSilent({ flows, tap, say = async () => {} }, ways, release) {
  await sleep(TALK_AGAIN);
  const words = [...flows.map((flow) => flow.one()), say()];
  await sleep(SILENCE - TALK_AGAIN);
  for (const way of ways) assert.ok(flows[way === 'up' ? 0 : 1].received < flows[way === 'up' ? 0 : 1].sent, `it was silent ${way}`);
  release();
  await Promise.all(words);
  await traffic({ flows });
  for (const flow of flows) await flow.stop();
  await sleep(1_000);
  await tap.until(() => tap.attached);
}
