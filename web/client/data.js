// What goes through send() and message events.

import { utf8Length } from './wire.js';

/** @typedef {import('./types.js').Message} Message */

const tagOf = (/** @type {any} */ given) => ({}).toString.call(given).slice(8, -1);

/** @param {any} given */
export const isBytes = (given) => ArrayBuffer.isView(given) || tagOf(given) === 'ArrayBuffer';

/** A copy of an ArrayBuffer, or of what a view shows of one. @param {any} given @returns {ArrayBuffer} */
export function bytesOf(given) {
  const { buffer = given, byteOffset = 0, byteLength } = given;
  return byteLength > 0 ? new Uint8Array(buffer, byteOffset, byteLength).slice().buffer : new ArrayBuffer(0);
}

/**
 * A copy of what was given to send(): the caller may change its own at once. A Blob cannot change.
 * @param {any} given
 * @returns {{ data: Message, bytes: number }}
 */
export function outgoing(given) {
  if (isBytes(given)) return { data: bytesOf(given), bytes: given.byteLength };
  if (/^(Blob|File)$/.test(tagOf(given)) && given.arrayBuffer) return { data: given, bytes: given.size };
  const data = `${given}`;
  return { data, bytes: utf8Length(data) };
}

/** What a message event holds. @param {any} data @param {string} binaryType @returns {Message} */
export function incoming(data, binaryType) {
  if (!isBytes(data)) return data; // text, or a Blob of a transport that delivers what it likes
  if (binaryType === 'blob') return new Blob([data]);
  return ArrayBuffer.isView(data) ? bytesOf(data) : data;
}
