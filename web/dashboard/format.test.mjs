import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ago, brief, bytes, duration, many, period, rtt, short, span } from './format.js';

/** @param {(x: any) => any} write @param {[any, any][]} rows */
function table(write, rows) {
  for (const [given, want] of rows) assert.equal(write(given), want, `of ${given}`);
}

test('a span has at most two units, and none of them is full', () => {
  table(span, [
    [0, '0 ms'],
    [-5, '0 ms'],
    [999.4, '999 ms'],
    [1000, '1.0 s'],
    [9949, '9.9 s'],
    [9950, '10 s'],
    [59_499, '59 s'],
    [59_999, '1 m'],
    [61_000, '1 m 1 s'],
    [3_599_999, '1 h'],
    [3_660_000, '1 h 1 m'],
    [86_399_999, '1 d'],
    [90_000_000, '1 d 1 h'],
  ]);
});

test('durations are read as flags write them', () => {
  table(duration, [
    ['45s', 45_000],
    ['1m30s', 90_000],
    ['0', 0],
    ['250ms', 250],
    ['1.5h', 5_400_000],
    ['2562047h47m16s', 2562047 * 3_600_000 + 47 * 60_000 + 16_000],
  ]);
  table(period, [
    ['2m', '2 m'],
    ['1h30m', '1 h 30 m'],
    ['0', 'none'],
    ['0s', 'none'],
    ['?', '?'],
  ]);
  for (const bad of ['', '45', 's', '-1s', '1 s', '1m 30s', '1d', 'x45s', '45sx'])
    assert.ok(Number.isNaN(duration(bad)), bad);
});

test('bytes and counts are short', () => {
  table(bytes, [
    [0, '0 B'],
    [1023, '1023 B'],
    [1024, '1 KiB'],
    [1536, '1.5 KiB'],
    [1048576, '1 MiB'],
    [336829, '329 KiB'],
    [2 ** 50, '1024 TiB'],
  ]);
  table(short, [
    [0, '0'],
    [0.24, '0.2'],
    [9999, '9,999'],
    [12_345, '12.3K'],
    [4_560_000, '4.56M'],
  ]);
  table(rtt, [
    [0, '–'],
    [0.42, '0.4 ms'],
    [9.94, '9.9 ms'],
    [41.6, '42 ms'],
    [null, '–'],
  ]);
  table(ago, [
    [0, '0.0 s ago'],
    [-3, '0.0 s ago'],
    [412, '0.4 s ago'],
    [9949, '9.9 s ago'],
    [61_000, '1 m 1 s ago'],
  ]);
  assert.deepEqual([many(1, 'message'), many(1200, 'message')], ['1 message', '1,200 messages']);
  assert.deepEqual([brief('5e0b7d0e6d1f4b7f8d6a3a0f6f0b3c21'), brief('short')], ['5e0b7d0e…', 'short']);
});

test('sessions of one node have different short ids', () => {
  const node = '69d27912';
  assert.notEqual(brief(`${node}${'a'.repeat(32)}`), brief(`${node}${'b'.repeat(32)}`));
});
