// The recipe for MQTT: MQTT.js as browsers get it, and an aedes broker. Messages have quality of
// service 0: what a connection loses, MQTT does not repeat.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Aedes } from 'aedes';
import { WebSocketServer, createWebSocketStream } from 'ws';
import { Flow } from './flow.js';
import { startGateway } from './gateway.js';
import { Page } from './page.js';
import { recipe } from './recipes.js';
import { Relay } from './relay.js';
import { openServer } from './server.js';

export const RECIPE = recipe('MQTT');
export const GAME = RECIPE.code('game.js');

/** The code of the recipe with other options for `mqtt.connect`. @param {object} own */
export const withOptions = (own) => GAME.replace('/mqtt`)', `/mqtt\`, ${JSON.stringify(own)})`);

/** The recipe's broker, gateway and page, with a network between the latter. */
export async function play(t, { game = GAME, flags = [] } = {}) {
  const page = new Page(t);
  const server = await openServer(t);
  const broker = await openBroker(t, server);
  const gateway = await startGateway(t, [...RECIPE.flags({ 'localhost:3000': server.addr, 'localhost:8888': server.addr }), ...flags]);
  const relay = await Relay.open(t, gateway.addr);
  page.open(`http://${relay.addr}`);
  const serverEvents = watchBroker(broker);
  const { client } = await page.run(RECIPE.code('html'), { 'game.js': browserBuild(game) });
  const clientEvents = [];
  for (const event of ['connect', 'reconnect', 'close', 'offline', 'error', 'disconnect']) client.on(event, () => clientEvents.push(event));
  if (!client.connected) await once(client, 'connect');
  await client.subscribeAsync('down');
  page.onLeave(() => client.endAsync(true));
  return { page, tap: page.tap, server, broker, gateway, relay, client, clientEvents, serverEvents };
}

/** As the documentation of aedes shows it. */
async function openBroker(t, server) {
  const broker = await Aedes.createBroker();
  const wss = new WebSocketServer({ server });
  wss.on('connection', (ws, request) => broker.handle(createWebSocketStream(ws), request));
  t.after(() => broker.close());
  return broker;
}

function watchBroker(broker) {
  const events = [];
  for (const event of ['client', 'clientDisconnect', 'clientError', 'connectionError', 'keepaliveTimeout']) broker.on(event, () => events.push(event));
  return events;
}

/** MQTT.js tells a browser by its globals. This process has no window, so it is a worker of a page. @param {string} game */
function browserBuild(game) {
  class DedicatedWorkerGlobalScope {}
  Object.assign(globalThis, { self: new DedicatedWorkerGlobalScope() });
  if (!('navigator' in globalThis)) Object.assign(globalThis, { navigator: {} });
  return game.replace("'mqtt'", "'mqtt/dist/mqtt.esm'");
}

export function wantUnnoticed({ client, clientEvents, serverEvents, server }) {
  assert.deepEqual(clientEvents, ['connect']);
  assert.deepEqual(serverEvents, ['client']);
  assert.equal(server.handshakes, 1);
  assert.ok(client.connected);
}

/** Resolves when the client asks for an answer, which has not got anywhere. */
export const nextPing = ({ client }) =>
  new Promise((done) => {
    const heard = ({ cmd }) => {
      if (cmd !== 'pingreq') return;
      client.off('packetsend', heard);
      done(undefined);
    };
    client.on('packetsend', heard);
  });

/** Numbered messages both ways. */
export function flows({ client, broker }) {
  const payload = (n, filler) => Buffer.from(`${n} ${filler}`);
  const up = new Flow('up', (n, filler) => client.publish('up', payload(n, filler)));
  const down = new Flow('down', (n, filler) => broker.publish({ cmd: 'publish', topic: 'down', payload: payload(n, filler), qos: 0, dup: false, retain: false }, () => {}));
  const heard = (flow, data) => {
    const [, n, filler] = /^(\d+) ([^]*)$/.exec(String(data)) ?? [];
    flow.heard(Number(n), filler);
  };
  broker.on('publish', ({ topic, payload: data }) => topic === 'up' && heard(up, data));
  client.on('message', (topic, data) => topic === 'down' && heard(down, data));
  return [up, down];
}
