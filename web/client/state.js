/**
 * Where a session stands. `detached` has no connection, `suspected` has one that may be dead
 * and stays in use; `reloaded` looks for the session of the page before; in all three an
 * attempt may be under way. The application sees the first two as detached.
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
export const CONNECTING = 'connecting';
export const RELOADED = 'reloaded';
export const ATTACHED = 'attached';
export const SUSPECTED = 'suspected';
export const DETACHED = 'detached';
export const ENDED = 'ended';
