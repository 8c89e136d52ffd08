import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DLE, TOKEN, world } from './helpers.js';

// The first moment of a socket, and what is done before it.

test('a game server behind the gateway that picks no subprotocol, or another one, fails the handshake, as in a browser', () => {
  for (const [protocols, protocol, opens] of [
    [['chat.v1'], '', false],
    [['chat.v1'], 'chat.v2', false],
    [undefined, 'chat.v1', false],
    [['chat.v1'], 'chat.v1', true],
    [undefined, '', true],
  ]) {
    const w = world({ protocols });
    w.last().attach({ protocol });
    assert.deepEqual(w.take(), opens ? ['open'] : ['error', 'close 1006  unclean'], `${protocols} ${protocol}`);
    assert.equal(w.last().takeControls('bye').length, opens ? 0 : 1, 'the game server is not left with a player');
  }
  const ahead = world({ options: { token: 'a.b.c' } });
  ahead.last().attach({ protocol: 'chat.v1', resumed: true });
  assert.deepEqual(ahead.take(), ['open'], 'its maker asked for the subprotocol');
});

test('close() before hello says bye once hello has come, and the page hears 1006 at once', async () => {
  for (const opened of [false, true]) {
    const w = world();
    if (opened) w.last().open();
    w.socket.close();
    await w.clock.advance(0);
    assert.deepEqual(w.take(), ['error', 'close 1006  unclean']);
    assert.equal(w.last().closed, null, 'it is needed to say bye');
    if (!opened) w.last().open();
    w.last().hello();
    assert.deepEqual(w.last().take(), ['^bye {"code":1001}']);
    assert.deepEqual(w.last().closed, []);
    w.last().end(1001);
    assert.equal(w.clock.pending, 0, 'no timer is left behind');
    assert.deepEqual(w.take(), [], 'the page hears nothing more');
  }
});

test('close() before hello does not wait for ever, nor talk to a server that is no gateway', async () => {
  const hangs = world();
  hangs.socket.close();
  await hangs.clock.advance(16_000);
  assert.deepEqual(hangs.last().closed, []);
  const other = world();
  other.last().open();
  other.socket.close();
  other.last().receive('welcome');
  assert.deepEqual([other.last().sent, other.last().closed], [[], []]);
});

test('close() before hello ends no session that was made ahead: another socket may have its token', () => {
  const w = world({ options: { token: 'a.b.c' } });
  w.last().open();
  w.socket.close();
  w.last().hello();
  assert.deepEqual(w.last().sent, []);
  assert.deepEqual(w.last().closed, []);
});

test('a URL and subprotocols that are functions are asked at each attempt', async () => {
  let asked = 0;
  const w = world({
    url: () => `ws://game.test/?ticket=${++asked}`,
    protocols: async () => ['chat.v1', `ticket.${asked}`],
  });
  assert.equal(w.socket.url, '');
  await w.clock.advance(0);
  w.last().attach({ protocol: 'chat.v1' });
  assert.equal(w.last().url, 'ws://game.test/?ticket=1');
  assert.deepEqual(w.last().protocols.slice(0, 2), ['chat.v1', 'ticket.1']);
  assert.equal(w.socket.url, 'ws://game.test/?ticket=1');
  w.last().drop();
  await w.clock.advance(0);
  assert.equal(w.last().url, 'ws://game.test/?ticket=2');
  assert.deepEqual(w.last().protocols.slice(0, 4), ['chat.v1', 'ticket.2', 'reseat.v1', 'reseat.parts']);
  assert.equal(w.last().stated.token, TOKEN, 'it resumes');
});

test('an address that cannot be had is a failed attempt, and the next one asks again', async () => {
  let asked = 0;
  const url = async () => {
    if (++asked === 2) throw new Error('no ticket');
    if (asked === 3) return 'no URL: \\';
    return `ws://game.test/?ticket=${asked}`;
  };
  const w = world({ url });
  await w.clock.advance(0);
  w.last().attach();
  w.last().drop();
  for (let t = 0; asked < 4 && t < 10_000; t += 100) await w.clock.advance(100);
  assert.equal(w.sockets.length, 2, 'of four addresses two were none');
  w.last().resume();
  assert.equal(w.socket.detached, false);

  const never = world({ url: () => Promise.reject(new Error('no ticket')) });
  await never.clock.advance(0);
  assert.deepEqual(never.take(), ['error', 'close 1006  unclean']);
  assert.equal(never.sockets.length, 0);
});

test('an address that takes long does not use up the time of its attempt, and one that never comes ends it', async () => {
  let later;
  const w = world({ options: { address: () => new Promise((done) => (later = done)) } });
  later('ws://game.test/1');
  await w.clock.advance(0);
  w.last().attach();
  w.last().drop();
  await w.clock.advance(30_000);
  later('ws://game.test/2');
  await w.clock.advance(3_900);
  assert.equal(w.last().url, 'ws://game.test/2');
  assert.equal(w.last().closed, null);
  w.last().drop();
  await w.clock.advance(60_000);
  later('ws://game.test/3');
  await w.clock.advance(0);
  assert.equal(w.last().url, 'ws://game.test/3', 'the attempt after the one that never came');
});

test('option address may replace the URL, both, or nothing', async () => {
  const given = {
    1: 'ws://game.test/one',
    2: { url: 'ws://game.test/two', protocols: ['x'] },
    3: { protocols: 'y' },
    4: undefined,
  };
  let n = 0;
  const seen = [];
  const address = (...asked) => {
    seen.push(asked);
    return given[++n];
  };
  for (let i = 1; i <= 4; i++) {
    const w = world({ protocols: ['a'], options: { address } });
    await w.clock.advance(0);
    const { url, protocols } = w.last();
    assert.deepEqual(
      [url, protocols[0]],
      [
        ['ws://game.test/one', 'a'],
        ['ws://game.test/two', 'x'],
        ['ws://game.test/match/7', 'y'],
        ['ws://game.test/match/7', 'a'],
      ][i - 1],
    );
    assert.equal(w.socket.url, 'ws://game.test/match/7', 'the page sees the URL that it asked for');
  }
  assert.deepEqual(seen[0], ['ws://game.test/match/7', ['a']]);
});

test('what is sent in open, where a function names the URL, arrives', async () => {
  const w = world({ url: async () => 'ws://game.test/' });
  w.socket.addEventListener('open', () => w.socket.send('at once'));
  await w.clock.advance(0);
  w.last().attach();
  assert.deepEqual(w.last().take(), ['^ack 0', 'at once']);
  assert.ok(!w.last().protocols.includes(DLE));
});
