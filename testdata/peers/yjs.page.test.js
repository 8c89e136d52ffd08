import assert from 'node:assert/strict';
import { test as untimed } from 'node:test';
import { RECIPE, play, reload } from './lib/yjs.js';
import { detached, event, outage } from './lib/world.js';

const test = (name, run) => untimed(name, { timeout: 180_000 }, run);
const code = RECIPE.code('js');

/** The network is away until the grace period is over. @returns the close code that the first desk's provider gets */
async function outstayGrace(world) {
  const [a] = world.desks;
  const lost = event(a.provider, 'connection-close');
  const gone = event(world.server, 'all gone');
  await outage(world, () => {
    a.list.push(['written while away']);
    return gone;
  });
  const [{ code }] = await lost;
  return code;
}

test('shouldReconnect brings y-websocket back once the grace period is over', async (t) => {
  const world = await play(t, { flags: ['--grace', '300ms'] });
  assert.equal(await outstayGrace(world), 4404);
  const [, b] = world.desks;
  while (b.list.length === 0) await event(b.doc, 'update');
  assert.deepEqual(b.list.toJSON(), ['written while away']);
});

test('without shouldReconnect, y-websocket takes 4404 for its last word', async (t) => {
  const world = await play(t, { flags: ['--grace', '300ms'], code: code.replace('  shouldReconnect: () => true,\n', '') });
  assert.equal(await outstayGrace(world), 4404);
  const [{ provider, events }] = world.desks;
  if (!events.includes('closed')) await event(provider, 'closed');
  assert.equal(provider.shouldConnect, false);
});

test('with storage a reloaded page gets the whole document, and what it wrote while disconnected is in it', async (t) => {
  const stored = code.replace("{ keepalive: 'y-websocket' }", "{ keepalive: 'y-websocket', storage: sessionStorage }");
  const world = await play(t, { code: stored });
  const [a, b] = world.desks;
  a.list.push(['before']);
  while (b.list.length === 0) await event(b.doc, 'update');
  const sessions = async () => (await world.gateway.sessions()).map(({ id }) => id).sort();
  const before = await sessions();
  await outage(world, async () => {
    await detached(world);
    a.list.push(['while disconnected']);
  });
  for (const { doc, list } of await reload(world, stored)) {
    while (list.length < 2) await event(doc, 'update');
    assert.deepEqual(list.toJSON(), ['before', 'while disconnected']);
  }
  assert.deepEqual(await sessions(), before);
  assert.equal(world.server.handshakes, 2);
  assert.deepEqual(world.serverEvents, []);
});
