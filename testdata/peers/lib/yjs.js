// The recipe for y-websocket: documents in one page that are edited at once.

import assert from 'node:assert/strict';
import { docs, setupWSConnection } from '@y/websocket-server/utils';
import { WebSocketServer } from 'ws';
import { Flow } from './flow.js';
import { startGateway } from './gateway.js';
import { Page } from './page.js';
import { recipe } from './recipes.js';
import { Relay } from './relay.js';
import { openServer } from './server.js';

export const RECIPE = recipe('y-websocket');

/** What `keepalive: 'y-websocket'` gives a provider: an awareness message with no entries. */
const STAND_IN = Buffer.of(1, 1, 0);

/** The events of a provider that connects; the first of them may be over before anybody listens. */
export const OPENING = ['connecting', 'connected', 'sync true'];

/** The recipe's server and gateway, and two documents in a page. */
export async function play(t, { flags = [], code = RECIPE.code('js') } = {}) {
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
  for (const event of ['connection-close', 'connection-error', 'closed']) provider.on(event, () => events.push(event));
  provider.on('sync', (synced) => events.push(`sync ${synced}`));
  if (!provider.synced) await new Promise((done) => provider.once('sync', done));
  page.onLeave(() => provider.destroy());
  page.onLeave(() => doc.destroy());
  return { name, doc, provider, events, list: doc.getArray('list') };
}

/** Numbered entries that one desk writes and the other reads. */
export function flow(from, to) {
  const flow = new Flow(`${from.name} to ${to.name}`, (n, filler) => from.list.push([{ by: from.name, n, filler }]));
  to.list.observe(({ changes }) => {
    for (const { insert = [] } of changes.delta) for (const { by, n, filler } of insert) if (by === from.name) flow.heard(n, filler);
  });
  return flow;
}

/** Each socket was given exactly what its server's end sent, stand-ins apart, and the other way round. */
export function wantSameTraffic({ tap, ends }) {
  for (const [i, socket] of [...tap.sockets].entries()) {
    wantSame('down', tap.came.get(socket).filter((message) => !message.equals(STAND_IN)), ends[i].went);
    wantSame('up', ends[i].came, tap.went.get(socket));
  }
}

function wantSame(way, came, went) {
  assert.equal(came.length, went.length, `${way}: messages`);
  for (const [i, message] of went.entries()) assert.ok(message.equals(came[i]), `${way}: message ${i + 1} of ${went.length}`);
}
