import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { Game } from './game.js';

/** A socket that a test plays the server's side of. */
class ScriptedSocket extends EventTarget {
  readyState = 1;
  /** @type {any[]} */
  sent = [];
  #n = 0;

  /** @param {string} text */
  send(text) {
    this.sent.push(JSON.parse(text));
  }

  /** Hears the next message of the server. @param {object} message */
  hear(message) {
    this.hearAgain({ n: ++this.#n, ...message });
  }

  /** Hears a message with the number it has. @param {object} message */
  hearAgain(message) {
    this.dispatchEvent(Object.assign(new Event('message'), { data: JSON.stringify(message) }));
  }

  /** @param {number} seat @param {number} tick */
  welcome(seat, tick) {
    const you = { seat, name: 'Otter', wanderer: false, x: 10, y: 20, score: 0 };
    this.hear({
      t: 'welcome',
      seat,
      session: `session-${seat}`,
      tick,
      width: 1200,
      height: 675,
      players: [you],
      gems: [[0, 5, 6]],
    });
  }

  /** @param {number} seat @param {number} tick @param {number} score @param {number} got */
  state(seat, tick, score, got) {
    this.hear({ t: 'state', tick, players: [[seat, 10, 20, score]], in: { got, missed: 0, twice: 0, late: 0 } });
  }

  /** @param {string} type @param {object} detail */
  tell(type, detail) {
    this.dispatchEvent(Object.assign(new Event(type), detail));
  }

  /** @param {number} code */
  end(code) {
    this.readyState = 3;
    this.tell('close', { code, reason: '' });
  }
}

/** A game whose sockets are scripted, the newest last. @param {import('./game.js').Carried} [earlier] */
function scripted(earlier) {
  /** @type {ScriptedSocket[]} */
  const sockets = [];
  const game = new Game(() => {
    sockets.push(new ScriptedSocket());
    return /** @type {any} */ (sockets.at(-1));
  }, earlier);
  return { game, sockets };
}

test('inputs are numbered from 1 on each connection, those before the welcome too', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { game, sockets } = scripted();
  game.steer({ x: 0, y: 0 });
  sockets[0].welcome(4, 10);
  game.steer({ x: 1, y: 0 });
  sockets[0].end(1006);
  t.mock.timers.tick(1000);
  game.steer({ x: 0, y: 1 });
  sockets[1].welcome(5, 40);
  game.steer({ x: 0.123456, y: -1 });
  assert.deepEqual(
    sockets[0].sent.map((m) => m.s),
    [1, 2],
  );
  assert.deepEqual(sockets[1].sent, [
    { s: 1, t: 'steer', x: 0, y: 1 },
    { s: 2, t: 'steer', x: 0.12, y: -1 },
  ]);
});

test('a message that is missing or doubled is seen', () => {
  const { game, sockets } = scripted();
  sockets[0].welcome(4, 10);
  sockets[0].hearAgain({ n: 4, t: 'leave', seat: 9, score: 0 });
  sockets[0].hearAgain({ n: 4, t: 'leave', seat: 9, score: 0 });
  assert.deepEqual(game.down, { got: 2, missed: 2, twice: 1, late: 0, skipped: 0 });
});

test('a close costs the seat and its points, and what was not told meanwhile', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { game, sockets } = scripted();
  const lose = mock.fn();
  game.addEventListener('lose', lose);
  sockets[0].welcome(4, 10);
  sockets[0].state(4, 11, 7, 0);
  sockets[0].end(1006);
  assert.equal(game.phase, 'lost');
  assert.equal(lose.mock.callCount(), 1);
  game.steer({ x: 0, y: 0 });
  t.mock.timers.tick(1000);
  sockets[1].welcome(5, 31);
  sockets[1].state(5, 32, 0, 0);
  const { seatsLost, pointsLost, inputsDropped, updatesMissed, drops } = game.totals;
  assert.deepEqual(
    { seatsLost, pointsLost, inputsDropped, updatesMissed, drops },
    { seatsLost: 1, pointsLost: 7, inputsDropped: 1, updatesMissed: 20, drops: 1 },
  );
  assert.deepEqual([game.seat, game.score, game.session, game.phase], [5, 0, 'session-5', 'playing']);
});

test('attempts that fail cost nothing more, and the game goes on trying', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { game, sockets } = scripted();
  sockets[0].welcome(4, 10);
  sockets[0].end(1006);
  for (const k of [1, 2, 3]) {
    t.mock.timers.tick(1000);
    sockets[k].end(1006);
  }
  assert.equal(sockets.length, 4);
  assert.equal(game.totals.seatsLost, 1);
  assert.equal(game.totals.drops, 1);
});

test('a resume keeps seat and score, and reports the end of its replay', () => {
  const { game, sockets } = scripted();
  const back = mock.fn();
  game.addEventListener('back', back);
  sockets[0].welcome(4, 10);
  sockets[0].state(4, 11, 7, 0);
  sockets[0].tell('detach', { attempt: 1, since: 0 });
  sockets[0].tell('detach', { attempt: 2, since: 0 });
  assert.equal(game.phase, 'away');
  game.steer({ x: 0, y: 0 });
  assert.equal(game.pending, 1);
  sockets[0].tell('resume', { replay: 2, lost: 0, ms: 84 });
  sockets[0].state(4, 12, 8, 0);
  assert.equal(back.mock.callCount(), 0);
  sockets[0].state(4, 13, 9, 1);
  sockets[0].tell('replayed', {});
  assert.equal(back.mock.callCount(), 1);
  const { drops, resumes, lastBackMs, lastReplay, seatsLost, updatesMissed, inputsDropped } = game.totals;
  assert.deepEqual(
    { drops, resumes, lastBackMs, lastReplay, seatsLost, updatesMissed, inputsDropped },
    { drops: 1, resumes: 1, lastBackMs: 84, lastReplay: 2, seatsLost: 0, updatesMissed: 0, inputsDropped: 0 },
  );
  assert.deepEqual([game.seat, game.score, game.pending], [4, 9, 0]);
});

test('a reloaded page goes on with the numbers of the page before, and asks for the full picture', () => {
  const before = scripted();
  before.sockets[0].welcome(4, 10);
  before.sockets[0].state(4, 11, 7, 0);
  before.game.steer({ x: 1, y: 0 });
  const { game, sockets } = scripted(JSON.parse(JSON.stringify(before.game.counts)));
  const welcomed = mock.fn();
  game.addEventListener('welcome', welcomed);
  const [socket] = sockets;
  socket.tell('resume', { replay: 1, lost: 0, ms: 84, reloaded: true });
  assert.deepEqual(socket.sent, [{ s: 2, t: 'full' }]);
  socket.hearAgain({ n: 3, t: 'state', tick: 12, players: [[4, 10, 20, 8]], in: before.game.up });
  assert.deepEqual([game.phase, welcomed.mock.callCount()], ['connecting', 0], 'nothing is known of the arena yet');
  socket.tell('replayed', {});
  const you = { seat: 4, name: 'Otter', wanderer: false, x: 10, y: 20, score: 8 };
  const picture = { t: 'welcome', seat: 4, session: 's', tick: 12, width: 9, height: 9, players: [you], gems: [] };
  socket.hearAgain({ n: 4, ...picture });
  assert.deepEqual([game.phase, game.seat, game.score, welcomed.mock.callCount()], ['playing', 4, 8, 1]);
  assert.deepEqual(game.down, { got: 4, missed: 0, twice: 0, late: 0, skipped: 0 });
  assert.deepEqual([game.carried, game.reloaded], [2, { ms: 84, replay: 1 }]);
  assert.deepEqual([game.totals.seatsLost, game.totals.updatesMissed], [0, 0]);
  game.steer({ x: 0, y: 0 });
  assert.equal(socket.sent.at(-1).s, 3);
});

test('a page that begins a new session counts from 1, whatever the page before has counted', () => {
  const { game, sockets } = scripted({ sent: 9, down: { got: 5, missed: 0, twice: 0, late: 0 } });
  sockets[0].welcome(4, 10);
  game.steer({ x: 0, y: 0 });
  assert.deepEqual([sockets[0].sent[0].s, game.down.got, game.reloaded], [1, 1, null]);
});

test('a move to another connection is no return', () => {
  const { game, sockets } = scripted();
  const back = mock.fn();
  game.addEventListener('back', back);
  sockets[0].welcome(4, 10);
  sockets[0].tell('resume', { replay: 0, lost: 0, ms: 0 });
  sockets[0].tell('replayed', {});
  assert.equal(back.mock.callCount(), 0);
  assert.equal(game.totals.resumes, 0);
});

test('the picture follows sit, gem and leave', () => {
  const { game, sockets } = scripted();
  /** @type {any[]} */
  const told = [];
  for (const type of ['take', 'leave'])
    game.addEventListener(type, (e) => told.push([type, /** @type {any} */ (e).detail]));
  sockets[0].welcome(4, 10);
  const other = { seat: 9, name: 'Heron', wanderer: false, x: 1, y: 2, score: 3 };
  sockets[0].hear({ t: 'sit', player: other });
  sockets[0].hear({ t: 'gem', gem: [0, 70, 80], by: 9 });
  sockets[0].hear({ t: 'leave', seat: 9, score: 4 });
  assert.deepEqual(told, [
    ['take', { x: 5, y: 6, by: 9 }],
    ['leave', { ...other, score: 4 }],
  ]);
  assert.deepEqual([...game.gems], [[0, { x: 70, y: 80 }]]);
  assert.deepEqual([...game.players.keys()], [4]);
});

test('states that newer ones have replaced are neither missed messages nor missed ticks', () => {
  const { game, sockets } = scripted();
  const [socket] = sockets;
  socket.welcome(3, 10);
  socket.state(3, 11, 0, 0);
  socket.tell('detach', { attempt: 1 });
  socket.tell('resume', { replay: 1, lost: 0, skipped: 4, ms: 100 });
  socket.tell('skip', { skipped: 4 });
  socket.hearAgain({ n: 7, t: 'state', tick: 16, players: [], in: { got: 0, missed: 0, twice: 0, late: 0 } });
  socket.tell('replayed', {});
  assert.deepEqual([game.down.missed, game.down.skipped, game.totals.updatesMissed], [0, 4, 0]);
  assert.deepEqual([game.totals.lastReplay, game.totals.lastSkipped, game.tick], [1, 4, 16]);
});
