import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Link, Links, tap } from './links.js';

globalThis.document ??= /** @type {any} */ ({ baseURI: 'http://n1:8080/game' });

const detailed = (type, detail) => Object.assign(new Event(type), { detail });

/** A link whose application has got some messages. */
function linked({ delivered = 10 } = {}) {
  const link = new Link('s', 'ws://n1:8080/play');
  const socket = Object.assign(new EventTarget(), { sent: [], send: (data) => socket.sent.push(data), close() {} });
  link.adopt(socket);
  for (let n = 0; n < delivered; n++) socket.dispatchEvent(new Event('message'));
  return { link, socket };
}

/** What the gateway says of it. */
const gateway = (over = {}) => ({
  acked: 10,
  sent: 10,
  received: 0,
  written: 0,
  buffer_messages: 0,
  buffer_bytes: 0,
  ...over,
});

test('a message that was acked and never came is missed, one that came again duplicated', () => {
  const { link } = linked();
  for (const [said, missed, duplicated] of [
    [gateway(), 0, 0],
    [gateway({ acked: 9, sent: 14 }), 0, 0], // under way
    [gateway({ acked: 12, sent: 12 }), 2, 0],
    [gateway({ acked: 9, sent: 9 }), 0, 1],
    [gateway({ acked: 9, sent: 14 }), 0, 1], // what is under way hides it
    [gateway({ acked: 9, sent: 9, written: 1 }), 0, 2],
  ]) {
    link.compare(said, link.counted);
    assert.deepEqual([link.missed, link.duplicated], [missed, duplicated], JSON.stringify(said));
  }
});

test('messages that newer states replaced are skipped, not missed', () => {
  const { link, socket } = linked();
  const asked = link.counted;
  socket.dispatchEvent(detailed('skip', { skipped: 30 }));
  link.compare(gateway({ acked: 40, sent: 40 }), link.counted);
  assert.deepEqual([link.skipped, link.missed, link.duplicated], [30, 0, 0]);
  link.compare(gateway({ acked: 10, sent: 10 }), asked); // the skip came after the gateway was asked
  assert.equal(link.duplicated, 0);
  link.compare(gateway({ acked: 41, sent: 41 }), link.counted);
  assert.equal(link.missed, 1, 'one more is');
});

test('dropped messages are missed', () => {
  const { link, socket } = linked();
  socket.dispatchEvent(detailed('resume', { replay: 0, lost: 3, skipped: 0, ms: 900 }));
  link.compare(gateway({ acked: 13, sent: 13 }), link.counted);
  assert.deepEqual([link.missed, link.duplicated, link.outages], [3, 0, [900]]);
});

test('a ping of the replay came into the outage', (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const { link, socket } = linked();
  const hear = (data) => link.hear({ data, origin: 'ws://n1:8080' }, () => true);
  for (now of [20_000, 40_000]) {
    hear('ping');
    socket.send('pong');
  }
  now = 85_000;
  socket.dispatchEvent(detailed('resume', { replay: 1, lost: 0, skipped: 0, ms: 35_000 }));
  hear('ping');
  socket.send('pong');
  now = 100_000;
  hear('ping'); // not of the replay
  assert.equal(link.wire.ping?.into, 10_000);
  assert.deepEqual(socket.sent, ['pong', 'pong', 'pong'], 'the socket sends as before');
});

test('how late an outage was noticed counts from its cut', (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const { link, socket } = linked();
  now = 60_000; // a game of turns
  socket.dispatchEvent(new Event('detach'));
  assert.equal(link.noticed, 0, 'nobody cut it');
  socket.dispatchEvent(detailed('resume', { replay: 0, lost: 0, skipped: 0, ms: 0 }));
  now = 62_000;
  link.cut();
  for (now of [70_000, 74_000]) socket.dispatchEvent(new Event('detach')); // the second is a failed attempt
  assert.equal(link.noticed, 8_000);
});

// What has waited in the network comes late, all at once, and only then the end of the connection.
test('an outage lasts as long as the page waited, though the old connection came back once more', (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const { link, socket } = linked();
  now = 5_000;
  link.cut();
  now = 17_000;
  socket.dispatchEvent(new Event('message'));
  socket.dispatchEvent(new Event('detach'));
  now = 17_100;
  socket.dispatchEvent(detailed('resume', { replay: 3, lost: 0, skipped: 0, ms: 100 }));
  assert.deepEqual([link.outages, link.noticed], [[12_000], 12_000]);
});

test('a game that says nothing for a while is not silent, unless the panel has cut it', (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const { link, socket } = linked();
  now = 9_000;
  assert.equal(link.state, 'attached');
  link.cut();
  now = 12_000;
  assert.equal(link.state, 'silent');
  socket.dispatchEvent(new Event('message'));
  now = 80_000;
  assert.equal(link.state, 'attached', 'the fault is over');
});

test('connections to a lost node go to one that is not lost, for its time', (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const links = new Links();
  const to = () => new URL(links.led('ws://n1:8080/play?x=1')).href;
  assert.equal(to(), 'ws://n1:8080/play?x=1');
  assert.equal(links.lead('n1:8080', ['http://n2:8080/', 'http://n3:8080/'], 30_000), 'n2:8080');
  assert.equal(to(), 'ws://n2:8080/play?x=1');
  now = 10_000;
  assert.equal(links.lead('n2:8080', ['http://n1:8080/', 'http://n3:8080/'], 30_000), 'n3:8080');
  assert.equal(to(), 'ws://n3:8080/play?x=1');
  now = 31_000;
  assert.equal(to(), 'ws://n1:8080/play?x=1');
});

/** The browser, with plain sockets that go nowhere. */
function browser() {
  const opened = [];
  class WebSocket extends EventTarget {
    constructor(url) {
      super();
      this.href = new URL(url).href;
      opened.push(this.href);
      this.addEventListener('close', () => (this.readyState = 3));
    }
    get url() {
      return this.href;
    }
    send() {}
    close() {
      this.readyState = 2; // until the other end answers
    }
  }
  class Target {
    dispatchEvent() {}
  }
  return { WebSocket, EventTarget: Target, opened };
}

test('the page and the game see no key, and foreign servers get none', () => {
  const scope = browser();
  const links = new Links();
  tap(scope, links, 'n1:8080', false);
  const own = new scope.WebSocket('ws://n1:8080/play?a=1');
  assert.equal(links.elsewhere, '');
  new scope.WebSocket('ws://elsewhere/play');
  assert.deepEqual([links.host, links.elsewhere], ['n1:8080', 'elsewhere']);
  assert.deepEqual(scope.opened, [`ws://n1:8080/play?a=1&reseat.dev=${links.key}`, 'ws://elsewhere/play']);
  assert.equal(own.url, 'ws://n1:8080/play?a=1');
});

test('a plain socket that is led elsewhere stays the same one to the page', () => {
  const scope = browser();
  const links = new Links();
  tap(scope, links, 'n1:8080', false);
  const open = () => new scope.WebSocket('ws://n1:8080/play');
  open().dispatchEvent(Object.assign(new Event('close'), { code: 1006, reason: '' }));
  links.lead('n1:8080', ['http://n2:8080/'], 60_000);
  const second = open();
  assert.equal(second.url, 'ws://n1:8080/play');
  assert.match(scope.opened[1], /^ws:\/\/n2:8080\/play\?reseat\.dev=/);
  assert.deepEqual(
    links.all.map(({ url, sessionsLost }) => [url.href, sessionsLost]),
    [['ws://n2:8080/play', 1]],
  );
});

/** A page without the client, before the gateway. */
function plainPage(t) {
  let now = 1;
  t.mock.method(performance, 'now', () => now);
  const scope = browser();
  const links = new Links();
  tap(scope, links, 'n1:8080', true);
  const open = (path = '/socket.io/?sid=a') => new scope.WebSocket(`ws://n1:8080${path}`);
  const ends = (socket) => socket.dispatchEvent(Object.assign(new Event('close'), { code: 1006, reason: '' }));
  const told = () => links.all.map(({ url, sessionsLost, outages }) => [url.pathname, sessionsLost, outages]);
  return { links, open, ends, told, at: (ms) => (now = ms) };
}

test('a library that opens another socket has lost one session, whatever its query, and its outage is known', (t) => {
  const { open, ends, told, at } = plainPage(t);
  const first = open();
  first.dispatchEvent(new Event('open'));
  at(2_000);
  first.dispatchEvent(new Event('message'));
  at(4_000);
  ends(first);
  ends(open('/socket.io/?sid=b')); // an attempt fails
  at(9_000);
  open('/socket.io/?sid=c').dispatchEvent(new Event('open'));
  assert.deepEqual(told(), [['/socket.io/', 1, [7_000]]]);
});

test('two sockets of one path stay two while both are open', (t) => {
  const { open, told } = plainPage(t);
  open().dispatchEvent(new Event('open'));
  open('/socket.io/?sid=b').dispatchEvent(new Event('open'));
  assert.equal(told().length, 2);
});

test('a page that gives up a silent socket has lost its session at once, and the late end of that socket says nothing', (t) => {
  const { links, open, ends, told, at } = plainPage(t);
  const first = open();
  first.dispatchEvent(new Event('open'));
  for (const ms of [100, 200, 300]) first.dispatchEvent((at(ms), new Event('message')));
  links.all[0].cutAt = 300;
  at(9_000);
  assert.equal(links.all[0].state, 'silent');
  first.close();
  open('/socket.io/?sid=b').dispatchEvent(new Event('open'));
  ends(first);
  assert.deepEqual([links.all[0].state, told()], ['plain', [['/socket.io/', 1, [8_700]]]]);
});

test('a page that leaves has lost nothing', (t) => {
  const { open, ends, told } = plainPage(t);
  const lobby = open('/lobby');
  lobby.dispatchEvent(new Event('open'));
  lobby.close();
  ends(lobby);
  assert.deepEqual(told(), [['/lobby', 0, []]]);
});

test('a session that ends for an outage is told from one that the page leaves', () => {
  const end = (before, close) => {
    const { link, socket } = linked();
    before?.(socket);
    if (close) socket.close();
    socket.dispatchEvent(Object.assign(new Event('close'), { code: 1005, reason: '' }));
    return link.ended;
  };
  const back = (socket) => {
    socket.dispatchEvent(new Event('detach'));
    socket.dispatchEvent(detailed('resume', { replay: 9, lost: 0, skipped: 0, ms: 12_000 }));
  };
  assert.deepEqual(end(undefined, true), { how: 'the page closed it', outage: false, left: true });
  assert.deepEqual(end(back, true), { how: 'the page closed it, right after an outage', outage: true, left: false });
  assert.deepEqual(end(back), { how: '1005, right after an outage', outage: true, left: false });
  assert.deepEqual(
    end((socket) => socket.dispatchEvent(new Event('detach'))),
    {
      how: '1005, in an outage',
      outage: true,
      left: false,
    },
  );
});

// With data-keepalive: neither the gateway nor the game server knows of them.
test('a heartbeat that the client simulates, and its answer, count for nothing', () => {
  const { link, socket } = linked({ delivered: 0 });
  socket.addEventListener('message', ({ data }) => data === '2' && socket.send('3'));
  for (const origin of ['ws://n1:8080', '', '']) {
    const event = Object.assign(new Event('message'), { data: '2', origin });
    link.hear(event, () => socket.dispatchEvent(event));
  }
  socket.send('news');
  assert.deepEqual([link.delivered, link.sends, socket.sent], [1, 2, ['3', '3', '3', 'news']]);
});

test('sessions that the page left, or replaced, are no longer current', () => {
  const links = new Links();
  const end = (id, path, close) => {
    const link = links.of(id, `ws://n1:8080${path}`);
    const socket = Object.assign(new EventTarget(), { send() {}, close() {} });
    link.adopt(socket);
    if (close) socket.close();
    socket.dispatchEvent(Object.assign(new Event('close'), { code: 4404, reason: '' }));
  };
  end('left', '/lobby', true);
  end('lost', '/play', false);
  assert.deepEqual(
    links.current.map(({ session }) => session),
    ['lost'],
  );
  links.of('next', 'ws://n1:8080/play?sid=b');
  assert.deepEqual(
    links.current.map(({ session }) => session),
    ['next'],
  );
});

test('an outage that a plain connection survives was felt as well', (t) => {
  const { links, open, told, at } = plainPage(t);
  const socket = open('/play');
  socket.dispatchEvent(new Event('open'));
  for (const ms of [100, 200, 300, 5_300]) socket.dispatchEvent((at(ms), new Event('message'))); // a quiet game
  links.all[0].cutAt = 5_400;
  for (const ms of [17_400, 17_500]) socket.dispatchEvent((at(ms), new Event('message')));
  assert.deepEqual(told(), [['/play', 0, [12_000]]]);
});
