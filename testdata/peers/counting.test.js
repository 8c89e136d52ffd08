import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test as untimed } from 'node:test';
import { Player, startGame, value, values } from './lib/counting.js';

// The game server of docs/games/counting-node, the program itself, behind a stand-in for gateways that die, wake up and
// hand over: it dials as they do, with the numbers that a player has. The commands are those of docs/games/README.md.

const test = (name, run) => untimed(name, { timeout: 180_000 }, run);

/** Sums up. @param {number[]} list */
const total = (list) => list.reduce((a, b) => a + b, 0);

/** Asserts that exactly the player's messages up to the last one were applied, in order. */
async function wantApplied(game, session, last, player) {
  const report = await game.until(session, ({ received }) => received >= last);
  assert.deepEqual(report.applied, values(1, last));
  assert.deepEqual([report.received, report.lost], [last, 0]);
  if (player) assert.deepEqual([player.received, player.sum], [report.sent, report.sum]);
  return report;
}

test('each message is applied once and arrives once, wherever a gateway dies', async (t) => {
  const game = await startGame(t);
  for (let written = 0; written <= 12; written++) {
    const session = `cut-${written}`;
    const acked = Math.floor((written * 5) / 7); // to the player, who sends the later ones again
    const had = Math.floor((written * 3) / 8); // by the player; the gateway had read more
    const player = new Player();
    const first = await game.dial({ Session: session, Epoch: 1 });
    first.write(1, written);
    player.take(await first.read(had));
    await game.until(session, ({ received }) => received >= acked); // a reset takes what is unread with it
    first.die(written);
    const second = await game.dial({ Session: session, Epoch: 2, Resumed: 'failover', 'Up-From': acked + 1, 'Down-From': had + 1 });
    second.write(acked + 1, 20);
    player.take(await second.read(20 - had));
    await wantApplied(game, session, 20, player);
    const { connections } = await game.until(session, ({ repeats }) => repeats === written - acked);
    assert.equal(connections, 2);
  }
});

test('a dial that no player ever used does no harm', async (t) => {
  const game = await startGame(t);
  const player = new Player();
  const first = await game.dial({ Session: 'a', Epoch: 1 });
  first.write(1, 9);
  player.take((await first.read(9)).slice(0, 4));
  first.die(0);
  for (let epoch = 2; epoch < 5; epoch++) {
    const unused = await game.dial({ Session: 'a', Epoch: epoch, Resumed: 'failover', 'Up-From': 7, 'Down-From': 5 });
    unused.write(7, 7 + epoch);
    await unused.read(5);
    unused.die(3);
  }
  const last = await game.dial({ Session: 'a', Epoch: 1005, Resumed: 'failover', 'Up-From': 7, 'Down-From': 5 });
  last.write(7, 15);
  player.take(await last.read(11));
  await wantApplied(game, 'a', 15, player);
});

test('a gateway that was only asleep repeats nothing and hears nothing', async (t) => {
  const game = await startGame(t);
  const player = new Player();
  const asleep = await game.dial({ Session: 'a', Epoch: 1 });
  asleep.write(1, 5);
  player.take((await asleep.read(5)).slice(0, 3));
  const second = await game.dial({ Session: 'a', Epoch: 2, Resumed: 'failover', 'Up-From': 4, 'Down-From': 4 });
  second.write(4, 8);
  player.take(await second.read(5));
  asleep.write(6, 9); // the player's, which they have sent to both: 9 is new to the game
  await game.until('a', ({ received }) => received === 9);
  second.write(9, 12);
  player.take((await second.read(9)).slice(5));
  const { repeats } = await wantApplied(game, 'a', 12, player);
  assert.equal(repeats, 2 + 3 + 1);
  assert.equal(asleep.came.length, 5, 'messages to the gateway that was asleep');
  assert.equal(asleep.closed, undefined, 'the connection of the gateway that was asleep is left to it');
});

test('a gateway that does not close its older connection is helped', async (t) => {
  const game = await startGame(t, { LINGER_MS: 50 });
  const older = await game.dial({ Session: 'a', Epoch: 1 });
  const newer = await game.dial({ Session: 'a', Epoch: 2, Resumed: 'upstream', 'Up-From': 1, 'Down-From': 1 });
  await once(older.socket, 'close');
  newer.write(1, 3);
  await newer.read(3);
  assert.equal(newer.closed, undefined);
});

test('messages that were acked and are still under way on an older connection come first', async (t) => {
  const game = await startGame(t, { WAIT_MS: 60_000, LINGER_MS: 60_000 });
  const player = new Player();
  const slow = await game.dial({ Session: 'a', Epoch: 1 });
  slow.write(1, 5);
  await slow.read(5);
  const second = await game.dial({ Session: 'a', Epoch: 2, Resumed: 'failover', 'Up-From': 8, 'Down-From': 1 });
  second.write(8, 9);
  player.take(await second.read(5));
  const { applied } = await game.report('a');
  assert.deepEqual(applied, values(1, 5), 'message 8 waits for 6 and 7');
  slow.write(6, 6);
  slow.write(7, 7);
  player.take((await second.read(9)).slice(5));
  await wantApplied(game, 'a', 9, player);
});

for (const [how, settings, end] of [
  ['ended', { WAIT_MS: 60_000 }, (line) => line.die(0)],
  ['silent', { WAIT_MS: 100 }, () => {}],
]) {
  test(`acked messages that died with a machine are reported, its connection ${how}`, async (t) => {
    const game = await startGame(t, { ...settings, LINGER_MS: 60_000 });
    const player = new Player();
    const first = await game.dial({ Session: 'a', Epoch: 1 });
    first.write(1, 5);
    player.take(await first.read(5));
    const second = await game.dial({ Session: 'a', Epoch: 2, Resumed: 'failover', 'Up-From': 8, 'Down-From': 6 });
    second.write(8, 9);
    end(first);
    const came = await second.read(3);
    player.take(came);
    assert.deepEqual(came[0].message, { n: 6, sum: total(values(1, 5)), lost: 2 });
    const report = await game.report('a');
    assert.deepEqual(report.applied, [...values(1, 5), value(8), value(9)]);
    assert.deepEqual([report.received, report.lost, report.sum], [9, 2, player.sum]);
  });
}

test('a request of a lower epoch is refused, whenever it comes', async (t) => {
  const game = await startGame(t);
  const newest = await game.dial({ Session: 'a', Epoch: 7 });
  newest.write(1, 3);
  await newest.read(3);
  const late = { Session: 'a', Epoch: 6, Resumed: 'upstream', 'Up-From': 1, 'Down-From': 1 };
  assert.equal(await game.refusal(late), 409);
  newest.die(0);
  assert.equal(await game.refusal(late), 409);
  const { refused } = await wantApplied(game, 'a', 3);
  assert.equal(refused, 2);
});

test('a hand-off repeats nothing', async (t) => {
  const game = await startGame(t);
  const player = new Player();
  const first = await game.dial({ Session: 'a', Epoch: 1 });
  first.write(1, 6);
  first.socket.close(1001, 'moved');
  await once(first.socket, 'close'); // whatever the game said before its Close was read
  player.take(first.came);
  const second = await game.dial({ Session: 'a', Epoch: 2, Resumed: 'handoff', 'Up-From': 7, 'Down-From': player.received + 1 });
  second.write(7, 9);
  player.take(await second.read(9 - player.received));
  const { repeats, resyncs } = await wantApplied(game, 'a', 9, player);
  assert.deepEqual([repeats, resyncs], [0, 0]);
});

test('the game goes on without a connection, and the next one brings what it said', async (t) => {
  const game = await startGame(t, { TICK_MS: 5 });
  const player = new Player();
  const first = await game.dial({ Session: 'a', Epoch: 1 });
  player.take(await first.read(2));
  first.die(0);
  const { sent } = await game.until('a', ({ sent }) => sent > player.received + 20);
  const second = await game.dial({ Session: 'a', Epoch: 2, Resumed: 'failover', 'Up-From': 1, 'Down-From': 3 });
  player.take(await second.read(sent));
  assert.equal(player.sum, player.received, 'each tick adds 1');
});

test('a player who lacks more than the game keeps gets the whole state', async (t) => {
  const game = await startGame(t, { KEPT_MESSAGES: 4 });
  const first = await game.dial({ Session: 'a', Epoch: 1 });
  first.write(1, 9);
  const player = new Player();
  player.take((await first.read(9)).slice(0, 4));
  const second = await game.dial({ Session: 'a', Epoch: 2, Resumed: 'failover', 'Up-From': 10, 'Down-From': 5 });
  second.write(10, 12);
  const came = await second.read(4);
  player.take(came);
  assert.deepEqual(came[0].message, { n: 5, sum: total(values(1, 9)) });
  await wantApplied(game, 'a', 12, player);
  const third = await game.dial({ Session: 'a', Epoch: 3, Resumed: 'failover', 'Up-From': 13, 'Down-From': 5 }); // the oldest that is kept
  assert.deepEqual(await third.read(4), came);
  const { resyncs } = await game.report('a');
  assert.equal(resyncs, 1);
});

test('a game that was restarted says what it has lost, and counts on', async (t) => {
  const game = await startGame(t);
  const player = new Player();
  player.received = 6;
  const line = await game.dial({ Session: 'a', Epoch: 2, Resumed: 'upstream', 'Up-From': 5, 'Down-From': 7 });
  line.write(5, 6);
  const came = await line.read(4);
  player.take(came);
  assert.deepEqual(came.map(({ message }) => message), [{ n: 7, sum: 0 }, { n: 8, sum: 0, lost: 4 }, { n: 9, add: value(5) }, { n: 10, add: value(6) }]);
  const { applied, received, lost } = await game.report('a');
  assert.deepEqual({ applied, received, lost }, { applied: values(5, 6), received: 6, lost: 4 });
});

test('a message that is no number is counted', async (t) => {
  const game = await startGame(t);
  const first = await game.dial({ Session: 'a', Epoch: 1 });
  for (const message of ['1', '2', 'three']) first.socket.send(message);
  await first.read(2);
  first.die(0);
  const second = await game.dial({ Session: 'a', Epoch: 2, Resumed: 'failover', 'Up-From': 4, 'Down-From': 3 });
  second.socket.send('4');
  await second.read(1);
  const { applied, received, lost } = await game.report('a');
  assert.deepEqual({ applied, received, lost }, { applied: [1, 2, 4], received: 4, lost: 0 });
});

test('a player is forgotten after a time', async (t) => {
  const game = await startGame(t, { KEPT_SEAT_MS: 50 });
  const line = await game.dial({ Session: 'a', Epoch: 1 });
  line.write(1, 1);
  await line.read(1);
  line.die(0);
  while (await game.report('a')) await new Promise((done) => setTimeout(done, 5));
});

test('a player who is back is not forgotten', async (t) => {
  const game = await startGame(t, { KEPT_SEAT_MS: 2000, TICK_MS: 100 });
  const first = await game.dial({ Session: 'a', Epoch: 1 });
  first.die(0);
  await game.until('a', ({ connections }) => connections === 1);
  await game.dial({ Session: 'a', Epoch: 2, Resumed: 'failover', 'Up-From': 1, 'Down-From': 1 });
  const { connections } = await game.until('a', ({ sent }) => sent >= 30); // 3 seconds
  assert.equal(connections, 2);
});

test('a request that cannot be counted is refused', async (t) => {
  const game = await startGame(t);
  assert.equal(await game.refusal({}), 400, 'not through a gateway');
  assert.equal(await game.refusal({ Session: 'a', Epoch: 2, Resumed: 'hard' }), 400, 'not a durable session');
});

test('the game names the library that the tests use', () => {
  const versions = (file) => JSON.parse(readFileSync(new URL(file, import.meta.url), 'utf8'));
  const { dependencies } = versions('../../docs/games/counting-node/package.json');
  assert.deepEqual(dependencies, { ws: versions('package.json').devDependencies.ws });
});
