import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { encodeStateVector } from 'yjs';
import { tenCuts } from './lib/cuts.js';
import { OPENING, RECIPE, flow, play, reload, wantSameTraffic } from './lib/yjs.js';

// A lost message would leave a document behind; a doubled one does no harm to it, so what
// each socket carried is compared with what its server's end carried, too.

test('ten cuts go unnoticed, and two documents are one', { timeout: 180_000 }, async (t) => {
  const world = await play(t);
  const [a, b] = world.desks;
  const flows = [flow(a, b), flow(b, a)];
  await tenCuts(world, flows);
  assert.deepEqual(encodeStateVector(a.doc), encodeStateVector(b.doc));
  assert.deepEqual(a.list.toJSON(), b.list.toJSON());
  assert.equal(a.list.length, flows[0].sent + flows[1].sent);
  for (const { events } of world.desks) assert.deepEqual(events, OPENING.slice(OPENING.length - events.length));
  assert.deepEqual(world.serverEvents, []);
  assert.equal(world.server.handshakes, 2);
  wantSameTraffic(world);
});

/** The network is away until the grace period is over. @returns the close code that the first desk's provider gets */
async function outstayGrace({ relay, server, desks: [a] }) {
  const lost = new Promise((done) => a.provider.once('connection-close', (event) => done(event.code)));
  const gone = once(server, 'all gone');
  relay.goDown();
  a.list.push(['written while away']);
  await gone;
  relay.comeUp();
  return lost;
}

test('shouldReconnect brings y-websocket back once the grace period is over', { timeout: 180_000 }, async (t) => {
  const world = await play(t, { flags: ['--grace', '300ms'] });
  assert.equal(await outstayGrace(world), 4404);
  const [, b] = world.desks;
  while (b.list.length === 0) await new Promise((done) => b.doc.once('update', done));
  assert.deepEqual(b.list.toJSON(), ['written while away']);
});

test('without shouldReconnect, y-websocket takes 4404 for its last word', { timeout: 180_000 }, async (t) => {
  const code = RECIPE.code('js').replace('  shouldReconnect: () => true,\n', '');
  const world = await play(t, { flags: ['--grace', '300ms'], code });
  assert.equal(await outstayGrace(world), 4404);
  const [{ provider, events }] = world.desks;
  if (!events.includes('closed')) await new Promise((done) => provider.once('closed', done));
  assert.equal(provider.shouldConnect, false);
});

test('with storage a reloaded page gets the whole document, and what it wrote while disconnected is in it', { timeout: 180_000 }, async (t) => {
  const option = "{ keepalive: 'y-websocket' }";
  const code = RECIPE.code('js').replace(option, "{ keepalive: 'y-websocket', storage: sessionStorage }");
  assert.ok(RECIPE.text.includes('`storage: sessionStorage`') && code !== RECIPE.code('js'));
  const world = await play(t, { code });
  const [a, b] = world.desks;
  a.list.push(['before']);
  await new Promise((done) => b.list.observe(done));
  const sessions = (await world.gateway.sessions()).map(({ id }) => id).sort();
  world.relay.goDown();
  await world.tap.until(() => !world.tap.attached);
  a.list.push(['while disconnected']);
  world.relay.comeUp();
  const again = await reload(world, code);
  for (const { list } of again) {
    while (list.length < 2) await new Promise((done) => list.observe(done));
    assert.deepEqual(list.toJSON(), ['before', 'while disconnected']);
  }
  assert.deepEqual((await world.gateway.sessions()).map(({ id }) => id).sort(), sessions);
  assert.equal(world.server.handshakes, 2);
  assert.deepEqual(world.serverEvents, []);
});
