import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { docs, setupWSConnection } from '@y/websocket-server/utils';
import { WebSocketServer } from 'ws';
import { encodeStateVector } from 'yjs';
import { tenCuts } from './lib/cuts.js';
import { Flow } from './lib/flow.js';
import { startGateway } from './lib/gateway.js';
import { Page } from './lib/page.js';
import { recipe } from './lib/recipes.js';
import { Relay } from './lib/relay.js';
import { openServer } from './lib/server.js';

// The recipe for y-websocket: ReseatSocket as its WebSocketPolyfill, two documents that are
// edited at once. A lost message would leave a document behind; a doubled one does no harm
// to it, so what each socket carried is compared with what its server's end carried, too.

const RECIPE = recipe('y-websocket');

/** The events of a provider that connects; the first of them may be over before anybody listens. */
const OPENING = ['connecting', 'connected', 'sync true'];

/** The recipe's server and gateway, and two documents in a page. */
async function play(t, { flags = [], code = RECIPE.code('js') } = {}) {
  const page = new Page(t);
  const server = await openServer(t);
  const serverEvents = [];
  const ends = serve(server, serverEvents);
  const gateway = await startGateway(t, [...RECIPE.flags({ 'localhost:1234': server.addr }), ...flags]);
  const relay = await Relay.open(t, gateway.addr);
  page.open(`http://${relay.addr}`);
  const desks = [await desk(page, 'a', code), await desk(page, 'b', code)];
  page.onLeave(() => {
    for (const doc of docs.values()) doc.awareness.destroy();
    docs.clear();
  });
  return { page, tap: page.tap, server, gateway, relay, desks, ends, serverEvents };
}

/** Serves documents, and records what each connection carries. */
function serve(server, events) {
  const ends = [];
  new WebSocketServer({ server }).on('connection', (ws, request) => {
    const end = { came: [], went: [] };
    ends.push(end);
    const { send } = ws;
    ws.send = (data, ...rest) => {
      end.went.push(Buffer.from(data));
      send.call(ws, data, ...rest);
    };
    ws.on('message', (data) => end.came.push(Buffer.from(data)));
    ws.on('close', (code) => {
      events.push(`closed with ${code}`);
      if (events.length === ends.length) server.emit('all gone');
    });
    setupWSConnection(ws, request);
  });
  return ends;
}

/** Opens the recipe's document once more. Documents of one process would find each other without a server: not these. */
async function desk(page, name, code) {
  const { doc, provider } = await page.module(code.replace('WebSocketPolyfill', 'disableBc: true, WebSocketPolyfill'));
  const events = [];
  provider.on('status', ({ status }) => events.push(status));
  for (const event of ['connection-close', 'connection-error', 'closed']) provider.on(event, () => events.push(event));
  provider.on('sync', (synced) => events.push(`sync ${synced}`));
  if (!provider.synced) await new Promise((done) => provider.once('sync', done));
  page.onLeave(() => provider.destroy());
  page.onLeave(() => doc.destroy());
  return { name, doc, provider, events, list: doc.getArray('list') };
}

/** Numbered entries that one desk writes and the other reads. */
function flow(from, to) {
  const flow = new Flow(`${from.name} to ${to.name}`, (n, filler) => from.list.push([{ by: from.name, n, filler }]));
  to.list.observe(({ changes }) => {
    for (const { insert = [] } of changes.delta) for (const { by, n, filler } of insert) if (by === from.name) flow.heard(n, filler);
  });
  return flow;
}

test('ten cuts go unnoticed, and two documents are one', { timeout: 60_000 }, async (t) => {
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

/** Each socket was given exactly what its server's end sent, and the other way round. */
function wantSameTraffic({ tap, ends }) {
  for (const [i, socket] of [...tap.sockets].entries()) {
    wantSame('down', tap.came.get(socket), ends[i].went);
    wantSame('up', ends[i].came, tap.went.get(socket));
  }
}

function wantSame(way, came, went) {
  assert.equal(came.length, went.length, `${way}: messages`);
  for (const [i, message] of went.entries()) assert.ok(message.equals(came[i]), `${way}: message ${i + 1} of ${went.length}`);
}

/** The network is away until the grace period is over. @returns the code that the first desk's provider is told */
async function outstayGrace({ relay, server, desks: [a] }) {
  const lost = new Promise((done) => a.provider.once('connection-close', (event) => done(event.code)));
  const gone = once(server, 'all gone');
  relay.goDown();
  a.list.push(['written while away']);
  await gone;
  relay.comeUp();
  return lost;
}

test('shouldReconnect brings y-websocket back once the grace period is over', { timeout: 60_000 }, async (t) => {
  const world = await play(t, { flags: ['--grace', '300ms'] });
  assert.equal(await outstayGrace(world), 4404);
  const [, b] = world.desks;
  while (b.list.length === 0) await new Promise((done) => b.doc.once('update', done));
  assert.deepEqual(b.list.toJSON(), ['written while away']);
});

test('without shouldReconnect, y-websocket takes 4404 for its last word', { timeout: 60_000 }, async (t) => {
  const code = RECIPE.code('js').replace('  shouldReconnect: () => true,\n', '');
  const world = await play(t, { flags: ['--grace', '300ms'], code });
  assert.equal(await outstayGrace(world), 4404);
  const [{ provider, events }] = world.desks;
  if (!events.includes('closed')) await new Promise((done) => provider.once('closed', done));
  assert.equal(provider.shouldConnect, false);
});
