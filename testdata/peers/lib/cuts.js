// Ten cuts under traffic.

import assert from 'node:assert/strict';

/** Messages that come each way between two cuts. */
const BETWEEN = 60;

/**
 * @typedef {object} World what a cut is made in
 * @property {import('./gateway.js').Gateway} gateway
 * @property {import('./relay.js').Relay} relay between the page and the gateway
 * @property {import('./tap.js').Tap} tap
 */

/**
 * Each cut, with how many resumes follow from it at least. The number of bytes of those
 * that fall within a connection's beginning: the 101 has more than 100, the `hello` behind
 * it more than 300, the replay comes after that.
 *
 * @type {{ name: string, resumes: number, make: (world: World) => any }[]}
 */
const CUTS = [
  { name: 'the operator disconnects', resumes: 1, make: operatorDisconnects },
  { name: 'a reset', resumes: 1, make: ({ relay }) => relay.cut() },
  { name: 'a reset within a message to the client', resumes: 1, make: ({ relay }) => relay.cutAfter('down', 1501) },
  { name: 'a reset within a message to the server', resumes: 1, make: ({ relay }) => relay.cutAfter('up', 1303) },
  { name: 'a reset, and the first way back breaks in its handshake', resumes: 1, make: ({ relay }) => resetAndSpoil(relay, 40) },
  { name: 'a reset, and the first way back breaks in its hello', resumes: 1, make: ({ relay }) => resetAndSpoil(relay, 300) },
  { name: 'a reset, and the way back breaks behind its hello', resumes: 2, make: ({ relay }) => resetAndSpoil(relay, 2500) },
  { name: 'a network that is away', resumes: 1, make: networkIsAway },
  { name: 'the operator disconnects again', resumes: 1, make: operatorDisconnects },
  { name: 'a last reset', resumes: 1, make: ({ relay }) => relay.cut() },
];

/** @param {World} world */
async function operatorDisconnects({ gateway }) {
  assert.ok((await gateway.disconnect()) > 0, 'a session is attached');
}

/** @param {World['relay']} relay @param {number} bytes */
function resetAndSpoil(relay, bytes) {
  relay.spoilNext(bytes);
  relay.cut();
}

/** Lasts until the way back has been tried in vain. @param {World} world */
async function networkIsAway({ relay, tap }) {
  const before = tap.detaches;
  relay.goDown();
  await tap.until(() => tap.detaches >= before + 2);
  relay.comeUp();
}

/**
 * Runs the flows and makes ten cuts in them, each when the one before is got over and
 * messages have come each way since. Resolves when all flows have brought all that was
 * sent, once and in order.
 *
 * @param {World} world
 * @param {import('./flow.js').Flow[]} flows at least one each way
 */
export async function tenCuts(world, flows) {
  const { tap, gateway } = world;
  await Promise.race([cutAll(world, flows), noticed(tap)]);
  assert.ok(tap.resumes >= CUTS.length, `${tap.resumes} resumes`);
  assert.ok((await gateway.metric('reseat_resumes_total{result="ok"}')) >= CUTS.length, 'the gateway has seen the resumes');
  await wantUntouched(world);
}

/** @param {World} world @param {import('./flow.js').Flow[]} flows */
async function cutAll(world, flows) {
  const { tap } = world;
  const progress = () => Promise.all(flows.map((flow) => flow.progress(BETWEEN)));
  for (const flow of flows) flow.start();
  await progress();
  for (const { resumes, make } of CUTS) {
    const before = tap.resumes;
    await make(world);
    await tap.until(() => tap.resumes >= before + resumes && tap.attached);
    await progress();
    await tap.until(() => tap.attached);
  }
  for (const flow of flows) await flow.stop();
}

/** Rejects if a library notices a cut. @param {World['tap']} tap */
export async function noticed(tap) {
  const told = () => tap.events.find((event) => event !== 'open');
  await tap.until(() => told() !== undefined);
  throw new Error(`a library noticed: ${[told(), ...tap.codes].join(', ')}`);
}

/** Nobody but Reseat knows of a cut: each socket has opened once, and nothing else. @param {World} world */
export async function wantUntouched({ tap, gateway }) {
  assert.deepEqual(tap.events, [...tap.sockets].map(() => 'open'));
  const sessions = await gateway.sessions();
  assert.deepEqual(sessions.map(({ state, resumable }) => ({ state, resumable })), [...tap.sockets].map(() => ({ state: 'attached', resumable: true })));
}
