// What goes through send() and message events.

import { utf8Length } from './wire.js';

/** @typedef {import('./types.js').Incoming} Incoming */

/** @param {any} given */
export const isBytes = (given) =>
  ArrayBuffer.isView(given) || Object.prototype.toString.call(given) === '[object ArrayBuffer]';

/** A copy of an ArrayBuffer, or of what a view shows of one. @param {any} given @returns {ArrayBuffer} */
export function bytesOf(given) {
  const { buffer = given, byteOffset = 0, byteLength } = given;
  return byteLength > 0 ? new Uint8Array(buffer, byteOffset, byteLength).slice().buffer : new ArrayBuffer(0);
}

/** A copy of what was given to send(): the caller may change its own at once. @param {any} given */
export function outgoing(given) {
  const tag = Object.prototype.toString.call(given);
  if (isBytes(given)) return { data: bytesOf(given), bytes: given.byteLength };
  if ((tag === '[object Blob]' || tag === '[object File]') && typeof given.arrayBuffer === 'function') {
    return { data: /** @type {Promise<ArrayBuffer>} */ (given.arrayBuffer()), bytes: given.size };
  }
  const data = `${given}`;
  return { data, bytes: utf8Length(data) };
}

/** What a message event holds. @param {any} data @param {string} binaryType @returns {Incoming} */
export function incoming(data, binaryType) {
  if (typeof data === 'string') return data;
  const buffer = ArrayBuffer.isView(data)
    ? data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength)
    : data;
  const blob = binaryType === 'blob' && typeof Blob === 'function' && typeof buffer.byteLength === 'number';
  return blob ? new Blob([buffer]) : buffer;
}
