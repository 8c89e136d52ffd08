// What holds for every library. A page stands in the globals of its process, so each test has a
// process of its own (apart.js), and only that one imports the library.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { noticed, tenCuts, wantUntouched } from './cuts.js';
import { event, silence } from './world.js';

const MODULES = {
  ws: './ws.js',
  'Socket.IO': './socketio.js',
  Colyseus: './colyseus.js',
  'boardgame.io': './boardgame.js',
  'graphql-ws': './graphql.js',
  'y-websocket': './yjs.js',
  MQTT: './mqtt.js',
};

export const LIBRARIES = Object.keys(MODULES);

async function play(t, library, options) {
  return (await import(MODULES[library])).play(t, options);
}

/** Ten cuts go unnoticed. @param {any} t @param {string} library @param {object} options of its play() */
export async function beCut(t, library, options) {
  await tenCuts(await play(t, library, options));
}

/** Messages that a plain client sends, and gets. */
const PLAIN = 300;

/** A page without Reseat has a connection like any other through the gateway. */
export async function bePlain(t, library, options) {
  const { gateway, flows, want } = await play(t, library, { plain: true, ...options });
  for (const flow of flows) flow.start();
  await Promise.all(flows.map((flow) => flow.progress(PLAIN)));
  for (const flow of flows) await flow.stop();
  const sessions = await gateway.sessions();
  assert.deepEqual([...new Set(sessions.map(({ resumable }) => resumable))], options.transport === 'polling' ? [] : [false]);
  await want();
}

// Silence: for 20 seconds nothing arrives, though every TCP connection stays open. It begins
// at the worst moment of each library's own watchdogs, and everything else is as the recipe
// and the libraries have it by default. All times are in milliseconds.

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

const PAUSE = 'after a pause';
const TRAFFIC = 'amid traffic';

/** The server's own ping, by the WebSocket protocol. @param {any} ws its end of a connection, of the library `ws` */
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

/** The next renewal of a client's awareness, which is set a little late for the fifth look. */
async function awarenessRenewed({ desks }) {
  await sleep(200);
  for (const { provider } of desks) provider.awareness.setLocalState({ name: 'ada' });
  await event(desks[0].provider.awareness, 'update', (_changes, origin) => origin === 'local');
}

/**
 * The watchdogs: `due` is when the session is as old as they need it, `next` resolves when what
 * they wait for is on its way, within the same turn of the event loop: what was sent in it has
 * not got anywhere.
 *
 * - `ws` watches nothing by itself.
 * - Socket.IO: the server closes a client that has not answered its ping for pingTimeout, 20 s;
 *   it pings every 25 s. The client closes when it has had no ping for both together. Both have
 *   20 s left when a ping has been sent and has not arrived.
 * - Colyseus: the server pings every 3 s, and closes a client at the third ping after two without
 *   an answer: Pings of the WebSocket protocol. The client takes a request() for failed after 10 s.
 * - boardgame.io: Socket.IO, whose server pings every 10 s.
 * - graphql-ws: the server pings every 12 s, by the WebSocket protocol, and closes a client that
 *   has not answered 12 s later.
 * - y-websocket: the client closes when it has received nothing for 30 s, which it looks at every
 *   3 s. What it receives on a quiet document is the echo of its own awareness: that is renewed
 *   when it is 15 s old, which is looked at every 3 s. Then there are 12 s left.
 * - MQTT.js pings after `keepalive`, 60 s. It closes when no answer has come 90 s after the last
 *   one, and the broker when it has received nothing for as long: both have 30 s left.
 *
 * @type {{ library: string, sent?: string, due: number, next?: (world: any) => Promise<any>, moments: string[] }[]}
 */
const WATCHDOGS = [
  { library: 'ws', due: A_WHILE, moments: [TRAFFIC] },
  { library: 'Socket.IO', sent: 'a ping of the server', due: 25_000, next: ({ peer }) => event(peer.conn, 'packetCreate', ({ type }) => type === 'ping'), moments: [PAUSE, TRAFFIC] },
  { library: 'Socket.IO', sent: 'the answer to a ping', due: 25_000, next: ({ socket }) => event(socket.io.engine, 'ping'), moments: [PAUSE] },
  { library: 'Colyseus', sent: 'a ping of the server', due: A_WHILE, next: ({ game: { clients } }) => nextPing([...clients][0]), moments: [PAUSE, TRAFFIC] },
  { library: 'boardgame.io', sent: 'a ping of the server', due: 20_000, next: async (world) => (await import('./boardgame.js')).nextPing(world), moments: [PAUSE, TRAFFIC] },
  { library: 'graphql-ws', sent: 'a ping of the server', due: 24_000, next: ({ wss: { clients } }) => nextPing([...clients][0]), moments: [PAUSE, TRAFFIC] },
  { library: 'y-websocket', sent: 'a renewed awareness', due: 0, next: awarenessRenewed, moments: ['on a quiet document'] },
  { library: 'y-websocket', due: A_WHILE, moments: [TRAFFIC] },
  { library: 'MQTT', sent: 'a PINGREQ of the client', due: 0, next: async (world) => (await import('./mqtt.js')).nextPing(world), moments: [PAUSE] },
  { library: 'MQTT', due: A_WHILE, moments: [TRAFFIC] },
];

/** Each watchdog's moments: its number, and the name of the test. */
export const SILENCES = WATCHDOGS.flatMap(({ library, sent, moments }, watchdog) =>
  moments.map((moment) => ({ watchdog, moment, name: `${library}: ${sent ? `${sent} is on its way, ` : ''}${moment}` })),
);

/**
 * What makes Reseat slow to notice an idle line: it was busy, and a pause was found harmless
 * (a ping was answered), so that none is suspected for half a minute. A message up that is
 * acked, and a last one down: now nobody owes anything, and silence is counted from here.
 *
 * @param {any} world
 * @param {number} until as of performance.now()
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

/** Resolves at the worst moment. */
async function reach(moment, world, { due, next = async () => {} }) {
  const at = (world.opened ?? performance.now()) + due;
  if (moment === TRAFFIC) {
    await sleep(at - 2_000 - performance.now());
    await traffic(world);
  } else if (due > 0) {
    await talkAndPause(world, at - 300);
  }
  await next(world);
}

/**
 * The silence goes unnoticed: the same seat, every message once and in order, and not an
 * event of the library's on either side.
 *
 * @param {any} t
 * @param {number} watchdog
 * @param {string} moment
 * @param {string} side
 */
export async function outlast(t, watchdog, moment, side) {
  const { library } = WATCHDOGS[watchdog];
  const world = await play(t, library);
  const seats = async () => (await world.gateway.sessions()).map(({ id }) => id).sort();
  const before = await seats();
  await reach(moment, world, WATCHDOGS[watchdog]);
  const release = silence(world.relay, SIDES[side]);
  await Promise.race([beSilent(world, SIDES[side], release), noticed(world.tap)]);
  await wantUntouched(world);
  assert.deepEqual(await seats(), before);
}

/** @param {any} world @param {('up' | 'down')[]} ways @param {() => void} release */
async function beSilent({ flows, tap, say = async () => {} }, ways, release) {
  await sleep(TALK_AGAIN);
  const words = [...flows.map((flow) => flow.one()), say()];
  await sleep(SILENCE - TALK_AGAIN);
  const late = Object.fromEntries(ways.map((way) => [way, flows[way === 'up' ? 0 : 1]]));
  for (const [way, { received, sent }] of Object.entries(late)) assert.ok(received < sent, `${received} messages of ${sent} came ${way} in the silence`);
  release();
  await Promise.all(words);
  await traffic({ flows });
  for (const flow of flows) await flow.stop();
  await tap.until(() => tap.attached);
}
