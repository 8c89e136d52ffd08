/**
 * The state of a session. `detached` has no connection, `suspected` has one that may be dead and
 * stays in use, `reloaded` looks for the session of the page before; in all three an attempt may
 * be in progress. The application sees the first two as detached. States before the first hello
 * of this page are less than `attached`.
 *
 *     connecting -> attached   the first hello
 *     attached   -> detached   the connection is lost or silent, or closed without a verdict
 *     attached   -> suspected  a connection with regular messages is silent and answers no ping
 *     suspected  -> attached   a message on it (a false alarm), or the hello of a resume
 *     suspected  -> detached   as for attached
 *     detached   -> attached   the hello of a resume
 *     attached   -> attached   the hello of a move
 *     reloaded   -> attached   the hello of a resume
 *     any        -> ended      also if it is replaced: from connecting by an ordinary WebSocket,
 *                              from reloaded by a new session
 */
export const CONNECTING = 0;
export const RELOADED = 1;
export const ATTACHED = 2;
export const SUSPECTED = 3;
export const DETACHED = 4;
export const ENDED = 5;

/** The names of the states, for traces. */
export const NAMES = ['connecting', 'reloaded', 'attached', 'suspected', 'detached', 'ended'];
