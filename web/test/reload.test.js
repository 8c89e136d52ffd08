import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attached, FIREFOX, OFFER, resumeOffer, said, settle, TOKEN, world } from './helpers.js';

// A page that reloads: option `storage`.

/** A tab's sessionStorage. */
class FakeStorage {
  items = new Map();
  getItem = (key) => this.items.get(key) ?? null;
  removeItem = (key) => {
    this.items.delete(key);
    Reflect.deleteProperty(this, key);
  };
  setItem = (key, value) => {
    if (this.full) throw new DOMException('full', 'QuotaExceededError');
    this.items.set(key, value);
    Reflect.set(this, key, value); // the items of a Storage are its own properties, too
  };
}

/** A page with a session, whose record will be in `storage`. */
const page = (storage, setup = {}) => attached({ ...setup, options: { storage, ...setup.options } });

/** The same, once that page is left. @param {object} [setup] @param {(w: any) => void} act what is done before */
function left(setup = {}, act = () => {}, storage = new FakeStorage()) {
  const before = page(storage, setup);
  act(before);
  before.page.fire('pagehide', { persisted: false });
  return { storage, before };
}

/** The next page of the tab: `ms` later. */
const next = (storage, { ms = 100, since, ...setup } = {}) => {
  const w = world({
    ...setup,
    options: { storage, ...setup.options },
    runtime: { wall: () => since.clock.mono + since.clock.away + ms, ...setup.runtime },
  });
  const details = [];
  w.socket.addEventListener('resume', ({ detail }) => details.push(said(detail)));
  return Object.assign(w, { details });
};

test('a reload resumes: open, then resume with reloaded, then what came meanwhile', async () => {
  const storage = new FakeStorage();
  const before = page(storage, { protocols: ['chat.v2'], first: { protocol: 'chat.v2' } });
  before.last().receive('1');
  before.last().receive('2');
  before.socket.send('up 1');
  before.socket.send(new Uint8Array([1, 200]));
  before.last().control('ack', 1);
  before.last().take();
  assert.equal(before.socket.resumed, false);
  before.page.fire('pagehide', { persisted: false });
  assert.deepEqual(before.last().take(), ['^ack 2'], 'no bye');
  before.last().receive('3'); // the page is gone: the next one gets it
  assert.deepEqual(before.log, ['1', '2']);

  const after = next(storage, { since: before, protocols: ['chat.v2'] });
  assert.equal(storage.items.size, 0, 'the record is taken out');
  assert.deepEqual(after.last().protocols, ['chat.v2', ...resumeOffer(TOKEN, 2, '1.2')]);
  assert.equal(after.socket.readyState, 0);
  after.last().resume({ received: 1, replay: 1, protocol: 'chat.v2' });
  assert.deepEqual(after.log, ['open', 'resume 1 0']);
  assert.deepEqual(after.details, [{ replay: 1, lost: 0, skipped: 0, ms: 100, reloaded: true }]);
  assert.deepEqual([after.socket.resumed, after.socket.session, after.socket.protocol], [true, 's1', 'chat.v2']);
  assert.deepEqual(after.last().take(), ['^ack 2', new Uint8Array([1, 200]).buffer]);
  after.last().receive('3');
  after.socket.send('up 3');
  after.last().control('ack', 3);
  assert.deepEqual(after.log, ['open', 'resume 1 0', '3', 'replayed']);
});

test('a duplicated tab finds no record while the page lives, and the next page only once', () => {
  const storage = new FakeStorage();
  const before = page(storage);
  assert.equal(storage.items.size, 0);
  before.page.fire('pagehide', { persisted: false });
  assert.ok(next(storage, { since: before }).last().stated.token);
  assert.equal(next(storage, { since: before }).last().stated.token, undefined);
});

test('sockets of one URL take records oldest first, and other URLs none', () => {
  const storage = new FakeStorage();
  const old = page(storage, { first: { token: 'old' } });
  const young = page(storage, {
    first: { token: 'young', session: 's2' },
    runtime: { wall: () => old.clock.mono + old.clock.away + 5 },
  });
  young.page.fire('pagehide', { persisted: false });
  old.page.fire('pagehide', { persisted: false });
  assert.equal(next(storage, { since: old, url: 'ws://game.test/match/8' }).last().stated.token, undefined);
  assert.equal(next(storage, { since: old }).last().stated.token, 'old');
  assert.equal(next(storage, { since: old }).last().stated.token, 'young');
});

test('a record that is too old is thrown away', () => {
  const { storage, before } = left({ first: { grace_ms: 30_000, heartbeat_ms: 15_000 } });
  const copy = new Map(storage.items);
  assert.equal(next(storage, { since: before, ms: 60_000 }).last().stated.token, undefined);
  assert.equal(storage.items.size, 0);
  storage.items = copy;
  assert.ok(next(storage, { since: before, ms: 59_999 }).last().stated.token);
});

test("a refused record, another player's for example, is discarded with its messages: a new session begins before open", async () => {
  const { storage, before } = left({}, ({ socket }) => socket.send('of the other player'));
  const after = next(storage, { since: before });
  after.last().verdict(4401, 'bad_token: another player');
  assert.equal(after.sockets.length, 2);
  assert.deepEqual(after.last().protocols, OFFER);
  after.last().attach({ session: 's2' });
  await settle();
  assert.deepEqual(after.log, ['open']);
  assert.deepEqual(after.last().take(), ['^ack 0']);
  assert.deepEqual([after.socket.resumed, after.socket.session, after.socket.bufferedAmount], [false, 's2', 0]);
});

test('attempts of a reloaded page are paced, without events, and it begins anew when the time is over', async () => {
  const { storage } = left({ first: { grace_ms: 10_000, heartbeat_ms: 0 } });
  const after = world({ options: { storage } });
  for (let i = 0; after.last().stated.token && i < 50; i++) {
    after.last().drop();
    for (let j = 0; j < 60 && after.last().readyState === 3; j++) await after.clock.advance(100);
  }
  assert.ok(after.sockets.length > 4 && after.sockets.length < 15, `${after.sockets.length} attempts`);
  assert.deepEqual(after.log, []);
  assert.equal(after.last().stated.token, undefined);
  assert.ok(after.clock.mono >= 10_000 && after.clock.mono <= 15_000, `${after.clock.mono} ms`);
  after.last().attach({ session: 's2' });
  assert.deepEqual(after.log, ['open']);
});

test('a gateway that asks to come back later is obeyed', async () => {
  const after = world({ options: { storage: left().storage } });
  after.last().open();
  after.last().control('close', { code: 4504, reason: 'node', retry: true, retry_after_ms: 700 });
  await after.clock.advance(699);
  assert.equal(after.sockets.length, 1);
  await after.clock.advance(1);
  assert.equal(after.sockets.length, 2);
  after.last().resume();
  assert.deepEqual(after.log, ['open', 'resume 0 0', 'replayed']);
});

test('reloading again before the resume is answered keeps the record', () => {
  const { storage, before } = left({}, ({ socket }) => socket.send('up'));
  const between = next(storage, { since: before });
  between.page.fire('pagehide', { persisted: false });
  const after = next(storage, { since: before });
  after.last().resume();
  assert.deepEqual(after.last().take(), ['^ack 0', 'up']);
});

test('where the record does not fit, or is too large, or has a Blob to come, the page says bye', async () => {
  const bye = '^bye {"code":1001,"reason":""}';
  /** What was said, and how many records there are. */
  const kept = (data, storage = new FakeStorage()) => {
    const act = (w) => (data && w.socket.send(data), w.last().take());
    return [left({}, act, storage).before.last().take(), storage.items.size];
  };
  assert.deepEqual(kept('', Object.assign(new FakeStorage(), { full: true })), [[bye], 0]);
  assert.deepEqual(kept('x'.repeat((1 << 20) + 1)), [[bye], 0]);
  assert.deepEqual(kept('x'.repeat(1 << 20)), [[], 1]);
  assert.deepEqual(kept(new Blob(['x']))[1], 0);
});

test('what is sent in a later pagehide listener is in the record; close() there ends the session', () => {
  const { storage, before } = left();
  before.socket.send('last words');
  const after = next(storage, { since: before });
  after.last().resume();
  assert.deepEqual(after.last().take(), ['^ack 0', 'last words']);

  const closed = left();
  closed.before.socket.close(4001);
  assert.equal(closed.storage.items.size, 0);
  assert.deepEqual(closed.before.last().take(), ['^bye {"code":4001,"reason":""}']);
});

test('a session that the page has closed leaves no record', () => {
  assert.equal(left({}, ({ socket }) => socket.close(4001)).storage.items.size, 0);
});

test('a page in the back/forward cache has a record, and takes it back', async () => {
  const storage = new FakeStorage();
  const w = page(storage);
  w.socket.send('up');
  w.last().take();
  w.page.fire('pagehide', { persisted: true });
  assert.equal(storage.items.size, 1);
  w.last().end(1001);
  await w.clock.advance(20_000);
  assert.equal(w.sockets.length, 1, 'nothing is tried from in there');
  w.page.fire('pageshow', { persisted: true });
  assert.equal(storage.items.size, 0);
  w.last().resume();
  assert.deepEqual(w.last().take(), ['^ack 0', 'up']);
  assert.deepEqual(
    w.log.filter((entry) => !/^detach/.test(entry)),
    ['resume 0 0', 'replayed'],
  );
});

test('where another page took the record, the page in the cache closes with 1006', () => {
  const storage = new FakeStorage();
  const w = page(storage);
  w.page.fire('pagehide', { persisted: true });
  assert.ok(next(storage, { since: w }).last().stated.token);
  w.page.fire('pageshow', { persisted: true });
  assert.deepEqual(w.log, ['error', 'close 1006  unclean']);
  assert.ok(!w.last().sent.some((data) => String(data).includes('bye')), "the session is the other page's");
});

test('localStorage is a TypeError, and so is what is no storage', () => {
  const own = globalThis.localStorage;
  if (!own) globalThis.localStorage = new FakeStorage();
  try {
    assert.throws(() => world({ options: { storage: globalThis.localStorage } }), TypeError);
  } finally {
    if (!own) delete globalThis.localStorage;
  }
  assert.throws(() => world({ options: { storage: {} } }), TypeError);
});

test('what others wrote there is not taken for a record', () => {
  for (const text of [
    'nonsense',
    '{}',
    '[]',
    '[null]',
    '[{}]',
    '[{"id":"x","saved":1,"keep":1e15}]',
    '[{"id":"x","saved":1,"keep":1e15,"said":{"token":"a b"},"out":{"kept":[],"acked":0}}]',
  ]) {
    const storage = new FakeStorage();
    storage.setItem('reseat:ws://game.test/match/7', text);
    const w = world({ options: { storage } });
    assert.deepEqual(w.last().protocols, OFFER, text);
  }
});

test('records of other URLs are removed once it is too late for them, and nothing else is', () => {
  const storage = new FakeStorage();
  storage.setItem('reseat:score', '7');
  const first = page(storage, { url: 'wss://game.example/match/7?ticket=1' });
  first.page.fire('pagehide', { persisted: false });
  const [key] = [...storage.items.keys()].filter((name) => name !== 'reseat:score');
  assert.match(key, /ticket=1$/);
  next(storage, { since: first, ms: 1000, url: 'wss://game.example/match/7?ticket=2' });
  assert.ok(storage.items.has(key), 'its session is still there');
  next(storage, { since: first, ms: 3_600_000, url: 'wss://game.example/match/7?ticket=3' });
  assert.deepEqual([...storage.items], [['reseat:score', '7']]);
});

test('a close() while the page is unloaded, where storage is asked for, may be a reload: the record is written', async () => {
  for (const type of ['beforeunload', 'pagehide', 'unload']) {
    const store = new FakeStorage();
    const w = attached({ options: { storage: store } });
    w.page.window.event = new Event(type);
    w.socket.close(4000, 'leaving');
    w.page.window.event = undefined;
    assert.equal(w.socket.readyState, 2);
    assert.deepEqual(w.last().sent, [], 'no bye');
    w.page.fire('pagehide', { persisted: false });
    assert.deepEqual(w.last().sent, []);
    const after = world({ options: { storage: store } });
    after.last().resume();
    assert.ok(after.socket.resumed, type);
  }
});

test('a page that closed its socket in beforeunload and stays has closed it', async () => {
  const w = attached({ options: { storage: new FakeStorage() } });
  w.page.window.event = new Event('beforeunload');
  w.socket.close(4000, 'leaving');
  w.page.window.event = undefined;
  await w.clock.advance(1_000);
  assert.deepEqual(w.last().take().at(-1), '^bye {"code":4000,"reason":"leaving"}');
  w.last().end(4000);
  assert.equal(w.log.at(-1), 'close 4000 leaving');
});

test('without storage a close() in beforeunload is a close()', () => {
  const w = attached();
  w.page.window.event = new Event('beforeunload');
  w.socket.close();
  assert.equal(w.last().take().at(-1).slice(0, 4), '^bye');
});

test('a record is found again where a function names the URL and its ticket', async () => {
  const store = new FakeStorage();
  let n = 0;
  const url = () => `ws://game.test/match/7?ticket=${++n}`;
  const w = world({ url, options: { storage: store } });
  await w.clock.advance(0);
  w.last().attach();
  w.page.fire('pagehide', { persisted: false });
  const after = world({ url, options: { storage: store } });
  await after.clock.advance(0);
  assert.equal(after.last().stated.token, TOKEN);
  after.last().resume();
  assert.ok(after.socket.resumed);
});

test('a page with storage that is left in Firefox may be reloading: it does not say so', () => {
  const userAgent = FIREFOX;
  const w = attached({
    options: { storage: new FakeStorage() },
    runtime: { navigator: { onLine: true, userAgent } },
  });
  w.page.fire('beforeunload');
  assert.deepEqual(w.last().sent, []);
});
