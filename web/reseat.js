/**
 * Reseat's browser client, protocol `reseat.v1`. A `ReseatSocket` is a drop-in replacement
 * for `WebSocket` whose session survives its connections: messages arrive exactly once and
 * in order, both ways, across any number of reconnections.
 *
 * Downward: Connection -> Session (counts, drops duplicates, acks) -> event.
 * Upward: send() -> Outbox (numbers, keeps until acked) -> Connection.
 *
 * Members whose names begin with an underscore are the modules' own; the bundle shortens them.
 *
 * Importing has no side effects and needs no window: pages, workers, Node, Deno, Bun. The
 * gateway serves this module bundled, as /reseat.js.
 */

export { CloseCode } from './client/closecode.js';
export { reseat } from './client/events.js';
export { install } from './client/install.js';
export { ReseatSocket, ReseatSocket as default } from './client/socket.js';
