// All time spans of the client, in milliseconds.

/** Protocol section 2: without a hello by then, the server does not know reseat.v1. */
export const firstHello = 5_000;
/** Protocol section 2: at least 15 s after the 101. */
export const resumeHello = 16_000;
/** Until the 101 of a resume, on all but slow links. */
export const connect = 4_000;
/** The same on any link: TCP, TLS and HTTP over a round trip of 8 s. */
export const connectMax = 40_000;
/** The default of `giveUpAfter`: an outage in which no gateway answers ends the session after this. */
export const giveUp = 600_000;
/** For the answer to an HTTP probe, on all but slow links: a lost SYN is repeated after 1 s. */
export const reach = 2_000;
/** Between the starts of two HTTP probes that fail at once: at least this, and up to half as much again. */
export const reachEvery = 1_000;
/** Protocol section 5: an ack is due 1 s after the oldest unacked message, less the time in transit. */
export const ack = 900;
/** After this an ack goes with data that is sent anyway: one read less for the gateway. */
export const ackAlong = 500;
/** Protocol section 3.1: an answer is due so long after the oldest unanswered part. */
export const part = 250;
/** What the line takes in this time and a round trip may be unanswered: protocol section 11. */
export const partWindow = 750;
/** Protocol section 5: the least time for an answer while no round trip is known. */
export const answer = 5_000;
/** The least silence that is suspicious on a connection with regular messages. */
export const quiet = 2_000;
/** The least time for the answer to a check, or to a ping after the page or the network has come back. */
export const probe = 2_000;
/** Protocol section 5: between two attempts beside a suspected connection. */
export const beside = 4_000;
/** Gaps between messages are remembered this long, or up to twice that. */
export const window = 30_000;
/** Between two checks that were needless. */
export const budget = 30_000;
/** The max between the starts of two attempts. */
export const jitter = 5_000;
/** The min between them. */
export const minGap = 50;
/** Before an attempt while the browser says that it is offline. */
export const offline = 10_000;
/** A page that is still there so long after `beforeunload` or `pagehide` stays. */
export const unload = 1_000;
/** Between `end` or `close` and the Close frame. */
export const closing = 2_000;
/** Protocol section 5: how long the gateway waits for the upstream after `bye`. */
export const byeTimeout = 10_000;
/** A connection that lasted this long was good. */
export const settled = 5_000;
/** A timer that is later than this: page or machine slept. */
export const slept = 5_000;
/** A timer that is later than this: the page was busy, or is hidden. */
export const paused = 50;
/** For messages that wait in a page that was busy. */
export const moment = 250;
/** Connections that end at once after their hello are retried for this long. */
export const futile = 30_000;
