import { test } from 'node:test';
import { docs, setupWSConnection } from '@y/websocket-server/utils';
import { WebSocket, WebSocketServer } from 'ws';
import { WebsocketProvider } from 'y-websocket';
import { Doc } from 'yjs';
import { sameAsDirect } from './lib/direct.js';
import { openServer } from './lib/server.js';

// y-websocket on `ws`, which knows nothing of Reseat.

/** Of the text that is there when the second peer comes. */
const LENGTH = 250_000;

async function openGame(t) {
  const server = Object.assign(await openServer(t), { note: (_entry) => {} });
  new WebSocketServer({ server }).on('connection', (ws, request) => {
    server.note({ url: request.url });
    ws.on('close', (code) => server.note({ closed: code }));
    setupWSConnection(ws, request);
  });
  return server;
}

/** Opens a document; resolves when it has what the server has. */
async function open(addr, log, name) {
  const doc = new Doc();
  const provider = new WebsocketProvider(`ws://${addr}`, 'room', doc, { WebSocketPolyfill: WebSocket, disableBc: true, params: { name } });
  provider.on('status', ({ status }) => log.client.push({ [name]: status }));
  provider.awareness.setLocalStateField('name', name);
  await new Promise((done) => provider.once('sync', done));
  return { doc, provider, text: doc.getText('text') };
}

/** Resolves when `when` holds, which is looked at after each change that a peer hears of. */
async function until(peer, when) {
  while (!when()) {
    await new Promise((done) => {
      peer.doc.once('update', done);
      peer.provider.awareness.once('change', done);
    });
  }
}

const names = ({ provider }) => [...provider.awareness.getStates().values()].map(({ name }) => name).sort();

/** Closes a peer's connection and all that belongs to it; resolves when the server knows. */
async function close(server, log, { doc, provider }) {
  const gone = new Promise((done) => (server.note = (entry) => log.server.push(entry) && 'closed' in entry && done(undefined)));
  provider.destroy();
  doc.destroy();
  await gone;
}

test('two documents become one, and see who is there', { timeout: 180_000 }, async (t) => {
  const server = await openGame(t);
  await sameAsDirect(t, server.addr, async (addr, log) => {
    server.note = (entry) => log.server.push(entry);
    const a = await open(addr, log, 'a');
    a.text.insert(0, 'x'.repeat(LENGTH));
    const b = await open(addr, log, 'b');
    await until(b, () => b.text.length === LENGTH);
    for (let i = 0; i < 200; i++) (i % 2 ? a : b).text.insert(i * 3, 'edit');
    for (const peer of [a, b]) await until(peer, () => peer.text.length === LENGTH + 200 * 4 && names(peer).length === 2);
    log.client.push({ same: a.text.toString() === b.text.toString(), length: a.text.length, names: [names(a), names(b)] });
    await close(server, log, b);
    await until(a, () => names(a).length === 1);
    await close(server, log, a);
    for (const doc of docs.values()) doc.destroy();
    docs.clear();
  });
});
