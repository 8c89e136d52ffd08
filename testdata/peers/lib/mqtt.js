// The recipe for MQTT: MQTT.js as browsers get it, and an aedes broker. Messages have quality of
// service 0: what a connection loses, MQTT does not repeat.

import assert from 'node:assert/strict';
import { Aedes } from 'aedes';
import { WebSocketServer, createWebSocketStream } from 'ws';
import { Flow } from './flow.js';
import { recipe } from './recipes.js';
import { event, openWorld } from './world.js';

const RECIPE = recipe('MQTT');

/**
 * The recipe's world.
 * @param {any} t
 * @param {{ connect?: object } & import('./world.js').Options} options `connect`: those of `mqtt.connect`, besides the recipe's
 */
export async function play(t, { connect = {}, ...rest } = {}) {
  const world = await openWorld(t, RECIPE, (server) => serve(t, server), rest);
  const { client } = await world.page.run(RECIPE.code('html'), { 'game.js': browserBuild(connect) });
  world.page.onLeave(() => client.endAsync(true));
  const clientEvents = record(client, ['connect', 'reconnect', 'close', 'offline', 'error', 'disconnect']);
  if (!client.connected) await event(client, 'connect');
  await client.subscribeAsync('down');
  const want = () => {
    assert.deepEqual([clientEvents, world.serverEvents], [['connect'], ['client']]);
    assert.ok(client.connected, 'the client is connected');
  };
  return { ...world, client, clientEvents, flows: flows(client, world.broker), want };
}

/** As the documentation of aedes shows it. */
async function serve(t, server) {
  const broker = await Aedes.createBroker();
  new WebSocketServer({ server }).on('connection', (ws, request) => broker.handle(createWebSocketStream(ws), request));
  t.after(() => broker.close());
  return { broker, serverEvents: record(broker, ['client', 'clientDisconnect', 'clientError', 'connectionError', 'keepaliveTimeout']) };
}

function record(emitter, names) {
  const events = [];
  for (const name of names) emitter.on(name, () => events.push(name));
  return events;
}

/** MQTT.js tells a browser by its globals. This process has no window, so it is a worker of a page. */
function browserBuild(options) {
  class DedicatedWorkerGlobalScope {}
  Object.assign(globalThis, { self: new DedicatedWorkerGlobalScope() });
  if (!('navigator' in globalThis)) Object.assign(globalThis, { navigator: {} });
  return RECIPE.code('game.js').replace('/mqtt`)', `/mqtt\`, ${JSON.stringify(options)})`).replace("'mqtt'", "'mqtt/dist/mqtt.esm'");
}

/** Resolves when the client asks for an answer, which has not got anywhere. */
export const nextPing = ({ client }) => event(client, 'packetsend', ({ cmd }) => cmd === 'pingreq');

function flows(client, broker) {
  const up = new Flow('up', (_n, _filler, text) => client.publish('up', Buffer.from(text)));
  const down = new Flow('down', (_n, _filler, text) => broker.publish({ cmd: 'publish', topic: 'down', payload: Buffer.from(text), qos: 0, dup: false, retain: false }, () => {}));
  broker.on('publish', ({ topic, payload }) => topic === 'up' && up.read(payload));
  client.on('message', (topic, payload) => topic === 'down' && down.read(payload));
  return [up, down];
}
