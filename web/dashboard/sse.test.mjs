import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Parser } from './sse.js';

const STREAM =
  ':\n\nid: 1\nevent: session.created\ndata: {"a":1}\n\n:\n\nid: 2\r\nevent: gap\r\ndata: x\r\ndata:y\r\n\r\ndata: z\n\nevent: none\n\n';
const WANT = [
  { id: '1', event: 'session.created', data: '{"a":1}' },
  { id: '2', event: 'gap', data: 'x\ny' },
  { id: '2', event: 'message', data: 'z' },
];

test('events come out the same, wherever the stream is cut', () => {
  for (let size = 1; size <= STREAM.length; size++) {
    const parser = new Parser();
    const got = [];
    for (let at = 0; at < STREAM.length; at += size) got.push(...parser.take(STREAM.slice(at, at + size)));
    assert.deepEqual(got, WANT, `in pieces of ${size}`);
    assert.equal(parser.lastId, '2');
  }
});
