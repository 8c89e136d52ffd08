/**
 * Where a session stands. `detached` has no connection, `suspected` has one that may be dead
 * and stays in use; `reloaded` looks for the session of the page before; in all three an
 * attempt may be under way. The application sees the first two as detached. What comes
 * before the page's first hello is less than `attached`.
 *
 *     connecting -> attached   the first hello
 *     attached   -> detached   drop, silence, Close without verdict
 *     attached   -> suspected  a lively connection is silent and answers no ping
 *     suspected  -> attached   it speaks (a false alarm), or the hello of a resume
 *     suspected  -> detached   as for attached
 *     detached   -> attached   the hello of a resume
 *     attached   -> attached   the hello of a move
 *     reloaded   -> attached   the hello of a resume
 *     any        -> ended      also where another takes its place: an ordinary WebSocket
 *                              from connecting, a new session from reloaded
 */
export const CONNECTING = 0;
export const RELOADED = 1;
export const ATTACHED = 2;
export const SUSPECTED = 3;
export const DETACHED = 4;
export const ENDED = 5;

/** For people who follow a trace; by state. */
export const NAMES = ['connecting', 'reloaded', 'attached', 'suspected', 'detached', 'ended'];
