import assert from 'node:assert/strict';
import { test } from 'node:test';
import { play, seated, until } from './lib/boardgame.js';
import { wantUntouched } from './lib/cuts.js';
import { detached, outage } from './lib/world.js';

test('moves made while disconnected arrive in order, and the other player sees nobody leave', { timeout: 180_000 }, async (t) => {
  const world = await play(t);
  const { client, other, tap } = world;
  const heard = [];
  await outage(world, async () => {
    await detached(world);
    other.subscribe(({ G }) => heard.at(-1) !== G.filler && heard.push(G.filler));
    for (const word of ['castle', 'check', 'mate']) client.moves.say(1, word);
    assert.equal(client.getState().G.filler, 'mate', 'the page shows its own moves at once');
  });
  await until(other, () => other.getState().G.filler === 'mate');
  assert.deepEqual(heard, ['', 'castle', 'check', 'mate']);
  assert.equal(client.getState()._stateID, other.getState()._stateID);
  await tap.until(() => tap.attached);
  await wantUntouched(world);
});

test('once the grace period is over, boardgame.io reconnects and gets the whole state', { timeout: 180_000 }, async (t) => {
  const world = await play(t, { flags: ['--grace', '300ms'] });
  const { client, other } = world;
  client.moves.say(1, 'before');
  await until(other, () => other.getState().G.filler === 'before');
  await outage(world, () => until(other, () => !seated(other)));
  await until(other, () => seated(other));
  await until(client, () => client.getState()?.isConnected);
  assert.deepEqual(world.seen, ['disconnected', 'connected']);
  assert.deepEqual(world.clientEvents.filter((event) => ['connect', 'disconnect'].includes(event)), ['connect', 'disconnect', 'connect']);
  client.moves.say(2, 'after');
  await until(other, () => other.getState().G.filler === 'after');
});
