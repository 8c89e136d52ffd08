// Ten cuts under traffic.

import assert from 'node:assert/strict';

/** Messages that come each way between two cuts. */
const BETWEEN = 60;

// A world has a gateway, the relay before it, the tap of the page's sockets, a server that counts
// handshakes, flows (the first is up, the second down), and `want`, which fails where an end of
// the library has noticed anything.

/**
 * Each cut, with how many resumes follow from it at least. The number of bytes of those
 * that fall within a connection's beginning: the 101 has more than 100, the `hello` behind
 * it more than 300, the replay comes after that.
 */
const CUTS = [
  { resumes: 1, make: operatorDisconnects },
  { resumes: 1, make: ({ relay }) => relay.reset() },
  { resumes: 1, make: ({ relay }) => relay.tear('down', 1501) }, // within a message
  { resumes: 1, make: ({ relay }) => relay.tear('up', 1303) },
  { resumes: 1, make: ({ relay }) => resetAndSpoil(relay, 40) }, // the first way back breaks in its handshake
  { resumes: 1, make: ({ relay }) => resetAndSpoil(relay, 300) }, // in its hello
  { resumes: 2, make: ({ relay }) => resetAndSpoil(relay, 2500) }, // behind its hello
  { resumes: 1, make: networkIsAway },
  { resumes: 1, make: operatorDisconnects },
  { resumes: 1, make: ({ relay }) => relay.reset() },
];

async function operatorDisconnects({ gateway }) {
  assert.ok((await gateway.disconnectAll()) > 0, 'a session is attached');
}

function resetAndSpoil(relay, bytes) {
  relay.spoilNext(bytes);
  relay.reset();
}

/** Lasts until the way back has been tried in vain. */
async function networkIsAway({ relay, tap }) {
  const before = tap.detaches;
  const comeUp = relay.goDown();
  await tap.until(() => tap.detaches >= before + 2);
  comeUp();
}

/**
 * Runs the flows of the world and makes ten cuts in them, each when the one before is got over
 * and messages have come each way since. Resolves when all flows have brought all that was
 * sent, once and in order, and nobody has noticed anything.
 */
export async function tenCuts(world) {
  const { tap, gateway } = world;
  await Promise.race([cutAll(world), noticed(tap)]);
  const resumes = { page: tap.resumes, gateway: await gateway.metric('reseat_resumes_total{result="ok"}') };
  assert.ok(Math.min(resumes.page, resumes.gateway) >= CUTS.length, `resumes ${JSON.stringify(resumes)}, want ${CUTS.length} at least`);
  await wantUntouched(world);
}

async function cutAll(world) {
  const { tap, flows } = world;
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

/** Rejects if a library notices a cut. */
export async function noticed(tap) {
  const told = () => tap.events.find((event) => event !== 'open');
  await tap.until(() => told() !== undefined);
  throw new Error(`a library noticed: ${[told(), ...tap.codes].join(', ')}`);
}

/**
 * Nobody but Reseat knows of a cut: each socket has opened once, and nothing else; the game
 * server has one connection for each; neither end of the library has noticed anything.
 */
export async function wantUntouched({ tap, gateway, server, want }) {
  assert.deepEqual(tap.events, [...tap.sockets].map(() => 'open'));
  const sessions = await gateway.sessions();
  assert.deepEqual(sessions.map(({ state, resumable }) => ({ state, resumable })), [...tap.sockets].map(() => ({ state: 'attached', resumable: true })));
  assert.equal(server.handshakes, tap.sockets.size, 'handshakes with the game server');
  await want();
}
