import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Wire } from './wire.js';

/** Messages at steady pace, and the page's answers. @param {number} every @param {(n: number) => string[]} of the nth pair */
function play(every, of, times = 4) {
  const wire = new Wire();
  for (let n = 0; n < times; n++) {
    const [receive, ...answers] = of(n);
    wire.heard(receive, n * every);
    for (const answer of answers) wire.said(answer, n * every + 20);
  }
  return wire;
}

test('a text that is answered alike each time is a ping', () => {
  assert.deepEqual(play(5000, () => ['ping', 'pong']).ping, { receive: 'ping', answer: 'pong', into: undefined });
});

test('a ping is known among any number of other messages', () => {
  const wire = new Wire();
  for (let n = 0; n < 9000; n++) {
    if (n % 3000 === 0) {
      wire.heard('ping', n * 10);
      wire.said('pong', n * 10);
    }
    wire.heard(`${n}`, n * 10 + 5);
    wire.said(`input ${n}`, n * 10 + 6);
  }
  assert.equal(wire.ping?.receive, 'ping');
});

test('a slow line brings some pings close together', () => {
  const wire = new Wire();
  for (const at of [0, 1500, 3700, 4500, 6000]) {
    wire.heard('ping', at);
    wire.said('pong', at);
  }
  assert.equal(wire.ping?.receive, 'ping');
});

test('what only looks like one is none', () => {
  for (const [why, wire] of Object.entries({
    'once is chance': play(5000, () => ['ping', 'pong'], 1),
    'states come faster': play(50, () => ['tick', 'left']),
    'answers differ': play(5000, (n) => ['tick', `input ${n}`]),
    'messages differ': play(5000, (n) => [`tick ${n}`, 'ok']),
    'it is seldom answered': play(5000, (n) => (n < 2 ? ['a', 'b'] : ['a'])),
    'it cannot be written as IN=>OUT': play(5000, () => ['a=>b', 'c']),
  }))
    assert.equal(wire.ping, undefined, why);
});

test('an answer belongs to the message before it, and comes soon', () => {
  const wire = new Wire();
  for (const n of [0, 1, 2]) {
    wire.heard('ping', n * 5000);
    wire.said('later', n * 5000 + 1500);
    wire.heard('ping', n * 5000 + 2500);
    wire.heard(new ArrayBuffer(2), n * 5000 + 2510);
    wire.said('input', n * 5000 + 2520);
  }
  assert.equal(wire.ping, undefined);
});

test('how far into the outage a ping came follows from its pace', () => {
  const wire = play(20_000, () => ['ping', 'pong'], 2); // at 0 and 20 s
  wire.heard('ping', 70_000, 35_000);
  assert.equal(wire.ping?.into, 5000);
  const once = play(20_000, () => ['ping', 'pong'], 1);
  once.heard('ping', 70_000, 35_000);
  once.said('pong', 70_001);
  assert.equal(once.ping?.into, NaN, 'its pace is not known');
});
