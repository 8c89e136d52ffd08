// Messages, as they are given to send() and as message events have them.

import { utf8Length } from './wire.js';

/** @typedef {import('./types.js').Message} Message */

const tagOf = (/** @type {any} */ given) => ({}).toString.call(given).slice(8, -1);

/** @param {any} given */
export const isBytes = (given) => ArrayBuffer.isView(given) || tagOf(given) === 'ArrayBuffer';

/** A copy of an ArrayBuffer, or of the part that a view shows. @param {any} given @returns {ArrayBuffer} */
export function bytesOf(given) {
  const { buffer = given, byteOffset = 0, byteLength } = given;
  return byteLength > 0 ? new Uint8Array(buffer, byteOffset, byteLength).slice().buffer : new ArrayBuffer(0);
}

/**
 * Copies the data given to send(), since the caller may change it at once. A Blob cannot change.
 * @param {any} given
 * @returns {{ data: Message, bytes: number }}
 */
export function outgoing(given) {
  if (isBytes(given)) return { data: bytesOf(given), bytes: given.byteLength };
  if (/^(Blob|File)$/.test(tagOf(given)) && given.arrayBuffer) return { data: given, bytes: given.size };
  const data = `${given}`;
  return { data, bytes: utf8Length(data) };
}

/** The data of a message event. @param {any} data @param {string} binaryType @returns {Message} */
export function incoming(data, binaryType) {
  if (!isBytes(data)) return data; // text, or the Blob of a transport without binaryType
  if (binaryType === 'blob') return new Blob([data]);
  return ArrayBuffer.isView(data) ? bytesOf(data) : data;
}
