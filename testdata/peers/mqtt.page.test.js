import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { tenCuts, wantUntouched } from './lib/cuts.js';
import { flows, nextPing, play, wantUnnoticed, withOptions } from './lib/mqtt.js';

test('ten cuts go unnoticed, and messages of quality of service 0 arrive once and in order', { timeout: 180_000 }, async (t) => {
  const world = await play(t);
  await tenCuts(world, flows(world));
  wantUnnoticed(world);
  const [[, [socket]]] = world.tap.went;
  assert.ok(Buffer.isBuffer(socket), 'MQTT is binary');
});

test('a PINGREQ that falls into a cut is answered after it', { timeout: 180_000 }, async (t) => {
  const world = await play(t, { game: withOptions({ keepalive: 4 }) });
  const answered = once(world.client, 'packetreceive', { signal: AbortSignal.timeout(30_000) });
  await nextPing(world);
  world.relay.goDown();
  await world.tap.until(() => !world.tap.attached);
  world.relay.comeUp();
  const [{ cmd }] = await answered;
  assert.equal(cmd, 'pingresp');
  await wantUntouched(world);
  wantUnnoticed(world);
});

/** The network is away until the broker misses its client. */
async function outlastKeepalive(world) {
  const missed = once(world.broker, 'clientDisconnect');
  world.relay.goDown();
  await missed;
  world.relay.comeUp();
}

test('an outage longer than half of the keepalive makes MQTT.js begin anew by itself', { timeout: 180_000 }, async (t) => {
  const world = await play(t, { game: withOptions({ keepalive: 1, reconnectPeriod: 100 }) });
  const again = new Promise((done) => world.client.on('connect', done));
  await outlastKeepalive(world);
  await again;
  assert.ok(world.clientEvents.includes('close'));
  assert.ok(world.serverEvents.includes('client'));
});

test('without a keepalive no outage within the grace period is noticed', { timeout: 180_000 }, async (t) => {
  const will = { topic: 'gone', payload: 'player 7' };
  const world = await play(t, { game: withOptions({ keepalive: 0, will }) });
  const said = [];
  world.broker.on('publish', ({ topic }) => said.push(topic));
  world.relay.goDown();
  await world.tap.until(() => world.tap.detaches >= 4); // about 2 s
  world.relay.comeUp();
  await world.tap.until(() => world.tap.attached);
  const [up, down] = flows(world);
  await Promise.all([up.one(), down.one()]);
  await wantUntouched(world);
  wantUnnoticed(world);
  assert.ok(!said.includes('gone'), 'no last will');
});

test('once the grace period is over the broker sends the last will, and MQTT.js connects and subscribes again', { timeout: 180_000 }, async (t) => {
  const will = { topic: 'gone', payload: 'player 7' };
  const world = await play(t, { game: withOptions({ will, reconnectPeriod: 100 }), flags: ['--grace', '300ms'] });
  const lastWill = new Promise((done) => world.broker.on('publish', ({ topic, payload }) => topic === 'gone' && done(String(payload))));
  const subscribed = new Promise((done) => world.broker.on('subscribe', done));
  world.relay.goDown();
  assert.equal(await lastWill, 'player 7');
  world.relay.comeUp();
  await subscribed;
  assert.equal(world.tap.codes[0], '4404 no_session');
  const [, down] = flows(world);
  await down.one();
});
