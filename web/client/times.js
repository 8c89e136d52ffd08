// Every time span of the client, in milliseconds.

/** Protocol section 2: none by then, and the server does not know us. */
export const firstHello = 5_000;
/** Protocol section 2: at least 15 s after the 101. */
export const resumeHello = 16_000;
/** To have the 101 of a resume, on all but slow links. */
export const connect = 4_000;
/** And on any: TCP, TLS and HTTP over a round trip of 8 s. */
export const connectMax = 40_000;
/** Without an answer of any gateway, an outage is the end of a session after this (option `giveUpAfter`). */
export const giveUp = 600_000;
/** For the answer to an HTTP probe, on all but slow links: a lost SYN is repeated after 1 s. */
export const reach = 2_000;
/** Between the starts of two HTTP probes that fail at once: this, and up to half as much again. */
export const reachEvery = 1_000;
/** Protocol section 5: 1 s after the oldest unacked message, less the way. */
export const ack = 900;
/** After this an ack goes with data that is sent anyway: one read less for the gateway. */
export const ackAlong = 500;
/** Protocol section 5: for an answer, at least, while no round trip is known. */
export const answer = 5_000;
/** A lively connection is not silent for that long. */
export const quiet = 2_000;
/** For the answer to a ping of suspicion, or after the page or the network has come back. */
export const probe = 2_000;
/** Protocol section 5: between two attempts beside a suspected connection. */
export const beside = 4_000;
/** Gaps between messages are remembered this long, or up to twice that. */
export const window = 30_000;
/** Between two pings that turned out to be needless. */
export const budget = 30_000;
/** The max between the starts of two attempts. */
export const jitter = 5_000;
/** The min between them. */
export const minGap = 50;
/** Pause before an attempt while the browser says that it is offline. */
export const offline = 10_000;
/** A page that closes its socket as it is unloaded, and is still there: it stays. */
export const unload = 1_000;
/** Between `end` or `close` and the Close frame. */
export const closing = 2_000;
/** Protocol section 5: what the gateway gives the upstream after `bye`. */
export const byeTimeout = 10_000;
/** A connection that held this long was a good one. */
export const settled = 5_000;
/** A timer later than this: page or machine slept. */
export const slept = 5_000;
/** A timer later than this: the page was busy, or is hidden. */
export const paused = 50;
/** For what waits in a page that was busy. */
export const moment = 250;
/** Connections that come to nothing, each at once after its hello, are tried for this long. */
export const futile = 30_000;
