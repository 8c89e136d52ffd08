import assert from 'node:assert/strict';
import { test as untimed } from 'node:test';
import { wantUntouched } from './lib/cuts.js';
import { nextPing, play } from './lib/mqtt.js';
import { event, outage } from './lib/world.js';

const test = (name, run) => untimed(name, { timeout: 180_000 }, run);
const will = { topic: 'gone', payload: 'player 7' };

test('a PINGREQ that falls into a cut is answered after it', async (t) => {
  const world = await play(t, { connect: { keepalive: 4 } });
  const answered = event(world.client, 'packetreceive');
  await nextPing(world);
  await outage(world);
  const [{ cmd }] = await answered;
  assert.equal(cmd, 'pingresp');
  await wantUntouched(world);
});

test('an outage longer than half of the keepalive makes MQTT.js begin anew by itself', async (t) => {
  const world = await play(t, { connect: { keepalive: 1, reconnectPeriod: 100 } });
  const again = event(world.client, 'connect');
  await outage(world, () => event(world.broker, 'clientDisconnect')); // the broker misses its client
  await again;
  assert.ok(world.clientEvents.includes('close'), String(world.clientEvents));
});

test('without a keepalive no outage within the grace period is noticed', async (t) => {
  const world = await play(t, { connect: { keepalive: 0, will } });
  const topics = [];
  world.broker.on('publish', ({ topic }) => topics.push(topic));
  await outage(world, () => world.tap.until(() => world.tap.detaches >= 4)); // about 2 s
  await world.tap.until(() => world.tap.attached);
  await Promise.all(world.flows.map((flow) => flow.one()));
  await wantUntouched(world);
  assert.ok(!topics.includes('gone'), 'no last will');
  const [[, [first]]] = world.tap.went;
  assert.ok(Buffer.isBuffer(first), 'MQTT is binary');
});

test('once the grace period is over the broker sends the last will, and MQTT.js connects and subscribes again', async (t) => {
  const world = await play(t, { connect: { will, reconnectPeriod: 100 }, flags: ['--grace', '300ms'] });
  const subscribed = event(world.broker, 'subscribe');
  const [{ payload }] = await outage(world, () => event(world.broker, 'publish', ({ topic }) => topic === 'gone'));
  assert.equal(String(payload), 'player 7');
  await subscribed;
  assert.equal(world.tap.codes[0], '4404 no_session');
  await world.flows[1].one();
});
