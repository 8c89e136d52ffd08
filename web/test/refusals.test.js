import assert from 'node:assert/strict';
import { test } from 'node:test';
import { reseat } from '../reseat.js';
import { attached, offerOf, world } from './helpers.js';

// A first handshake that the gateway refuses, visibly (protocol section 2).

const refuse = (w, members) => {
  w.last().open();
  w.last().control('close', { code: 4403, reason: '', retry: false, retry_after_ms: 0, ...members });
};

test('a refusal is error, then close with its code and reason, and no second connection follows', () => {
  const w = world();
  const details = [];
  w.socket.addEventListener('close', ({ detail }) => details.push(detail));
  refuse(w, { reason: 'login: expired', status: 401 });
  assert.deepEqual(w.log, ['error', 'close 4403 login: expired unclean']);
  assert.equal(w.socket.readyState, 3);
  assert.equal(w.sockets.length, 1);
  assert.deepEqual(details, [
    { code: 4403, reason: 'login: expired', wasClean: false, status: 401, retry: false, retry_after_ms: 0 },
  ]);
});

test('a refusal with retry is not retried by itself', async () => {
  const w = world();
  refuse(w, { code: 4503, reason: 'full', status: 503, retry: true, retry_after_ms: 10 });
  await w.clock.advance(60_000);
  assert.equal(w.sockets.length, 1);
});

test('a refusal proves that a gateway is there', () => {
  const gateways = new Set();
  refuse(world({ runtime: { gateways } }), {});
  const w = world({ runtime: { gateways } });
  w.last().drop();
  assert.equal(w.sockets.length, 1, 'no fallback');
});

test('refusals: false makes no offer of it', () => {
  assert.deepEqual(world({ options: { refusals: false } }).last().protocols, offerOf([]));
});

test('reseat fires the events of every socket, with the socket', () => {
  const heard = [];
  const listener = ({ type, socket, detail }) => heard.push([type, socket, detail.socket === socket]);
  const types = ['detach', 'resume', 'replayed', 'close'];
  for (const type of types) reseat.addEventListener(type, listener);
  const w = attached();
  const other = world();
  w.last().drop();
  w.last().resume();
  refuse(other, { reason: 'no route', status: 404 });
  for (const type of types) reseat.removeEventListener(type, listener);
  assert.deepEqual(
    heard.map(([type, socket]) => [type, socket === w.socket]),
    [
      ['detach', true],
      ['resume', true],
      ['replayed', true],
      ['close', false],
    ],
  );
  assert.ok(heard.every(([, , same]) => same));
});

test('connections that fail again and again right after their hello come to an end, where something is to come', async () => {
  for (const replay of [1, 0]) {
    const w = attached();
    let failed = 0;
    for (; w.socket.readyState === 1 && failed < 40; failed++) {
      if (failed > 0) w.last().resume({ replay }); // which the browser cannot read
      w.last().drop();
      for (let i = 0; i < 60 && w.last().readyState === 3; i++) await w.clock.advance(100);
    }
    if (replay === 0) return assert.equal(w.socket.readyState, 1);
    assert.ok(failed > 10 && failed < 40, `${failed}`);
    assert.ok(w.clock.mono >= 30_000 && w.clock.mono < 60_000, `${w.clock.mono} ms`);
    assert.deepEqual(w.log.slice(-2), ['error', 'close 1006  unclean']);
  }
});

test('a hello of a failover is not taken where its numbers are old', async () => {
  const w = attached();
  w.last().control('move', { within_ms: 0 });
  await w.clock.advance(1);
  const [old, beside] = w.sockets;
  old.receive('one'); // since the handshake stated 0
  beside.open();
  beside.hello({ resumed: true, moved: 'failover', replay: 1 });
  assert.notEqual(beside.closed, null);
  old.receive('two');
  assert.deepEqual(w.log, ['one', 'two']);
});
