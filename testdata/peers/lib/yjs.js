// The recipe for y-websocket: documents in one page that are edited at once.

import assert from 'node:assert/strict';
import { docs, setupWSConnection } from '@y/websocket-server/utils';
import { WebSocketServer } from 'ws';
import { encodeStateVector } from 'yjs';
import { Flow } from './flow.js';
import { recipe } from './recipes.js';
import { event, eventually, openWorld } from './world.js';

export const RECIPE = recipe('y-websocket');

/** What `keepalive: 'y-websocket'` gives a provider: an awareness message with no entries. */
const STAND_IN = Buffer.of(1, 1, 0);

/** The events of a provider that connects; the first of them may be over before anybody listens. */
const OPENING = ['connecting', 'connected', 'sync true'];

/** The recipe's world with two documents in the page. @param {any} t @param {{ code?: string } & import('./world.js').Options} options */
export async function play(t, { code = RECIPE.code('js'), ...rest } = {}) {
  const world = await openWorld(t, RECIPE, serve, rest);
  const { page } = world;
  const desks = [await desk(page, 'a', code), await desk(page, 'b', code)];
  page.onLeave(() => {
    for (const doc of docs.values()) doc.awareness.destroy();
    docs.clear();
  });
  const [a, b] = desks;
  const want = async () => {
    for (const { provider: { awareness } } of desks) while (awareness.getStates().size < 2) await event(awareness, 'update');
    for (const { events } of desks) assert.deepEqual(events, OPENING.slice(OPENING.length - events.length));
    assert.deepEqual(world.serverEvents, []);
    assert.deepEqual(encodeStateVector(a.doc), encodeStateVector(b.doc));
    assert.deepEqual(a.list.toJSON(), b.list.toJSON());
    await wantSameTraffic(world);
  };
  return { ...world, desks, flows: [flow(a, b), flow(b, a)], want };
}

/** Serves documents, and records what each connection carries. */
function serve(server) {
  const ends = [];
  const serverEvents = [];
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
      serverEvents.push(`closed with ${code}`);
      if (serverEvents.length === ends.length) server.emit('all gone');
    });
    setupWSConnection(ws, request);
  });
  return { ends, serverEvents };
}

/** Reloads the page of a world, and opens its documents anew. @returns {Promise<any[]>} the desks */
export async function reload({ page, desks }, code) {
  page.reload();
  for (const { provider } of desks) {
    provider.ws = null; // the code of a page that is gone closes nothing
    provider.destroy();
  }
  return [await desk(page, 'a', code), await desk(page, 'b', code)];
}

/** Opens the recipe's document once more. Documents of one process would find each other without a server: not these. */
async function desk(page, name, code) {
  const { doc, provider } = await page.module(code.replace('WebSocketPolyfill', 'disableBc: true, WebSocketPolyfill'));
  const events = [];
  provider.on('status', ({ status }) => events.push(status));
  for (const name of ['connection-close', 'connection-error', 'closed']) provider.on(name, () => events.push(name));
  provider.on('sync', (synced) => events.push(`sync ${synced}`));
  if (!provider.synced) await event(provider, 'sync');
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

/**
 * Each socket was given exactly what its server's end sent, stand-ins apart, and the other way
 * round: a doubled message would do no harm to a document.
 */
async function wantSameTraffic({ tap, ends }) {
  for (const [i, socket] of [...tap.sockets].entries()) {
    const { came, went } = ends[i];
    await wantSame('down', () => tap.came.get(socket).filter((message) => !message.equals(STAND_IN)), went);
    await wantSame('up', () => came, tap.went.get(socket));
  }
}

async function wantSame(way, came, went) {
  await eventually(() => came().length >= went.length); // an awareness may be on its way
  const hex = (messages) => messages.map((message) => message.toString('hex'));
  assert.deepEqual(hex(came()), hex(went), way);
}
