/*
 * The bounds of the model, its words, and the rules of reseat.v1 that its checks
 * hang on, each with the ways to break it: -DNO_FENCE and so on. "Section" is a
 * section of reseat.v1.
 */

/* ---- bounds, each to be set with -D */

#ifndef DOWN
#define DOWN 2       /* messages of the game server */
#endif
#ifndef UP
#define UP 2         /* messages of the application */
#endif
#ifndef FAULTS
#define FAULTS 2     /* cuts, silences, attempts given up though nothing was cut, resumes beside a live connection, dials that fail: in all */
#endif
#ifndef SLOTS
#define SLOTS 3      /* connections that exist at once; in the course of time as many as the faults bring */
#endif
#ifndef RING
#define RING 2       /* messages that the replay buffer holds */
#endif
#ifndef WINDOW
#define WINDOW 2     /* messages that the client may have sent without an ack */
#endif

/* What may happen as well: -DGRACE=1 and so on. */
#ifndef GRACE
#define GRACE 0      /* the grace period ends */
#endif
#ifndef BYE
#define BYE 0        /* the application closes, once it has sent everything */
#endif
#ifndef CLOSE
#define CLOSE 0      /* the game server closes, once it has sent everything */
#endif
#ifndef HARD
#define HARD 0       /* --disconnect hard: a resume waits until the game server has been dialled anew */
#endif
#ifndef RIVAL
#define RIVAL 0      /* somebody else resumes with a copy of the client's token */
#endif
#ifndef SILENCE
#define SILENCE 0    /* a connection falls silent for a while, or with 2 for good, and neither end is notified */
#endif
#ifndef SUSPICION
#define SUSPICION 0  /* a resume beside a live connection may be dropped, since that speaks, as often as it was begun */
#endif

#ifndef STATES
#define STATES 0     /* messages 1, 2 and 4 down are states of one key: a newer one replaces an older one, section 3.2 */
#endif

/* ---- words */

mtype = { hello, data, skipped, ack, bye, end, close, closed };

/* Close codes. */
#define BYE_CODE   1000
#define TOO_FAR    4400
#define BAD_TOKEN  4401
#define NO_SESSION 4404
#define TOO_OLD    4408
#define SUPERSEDED 4409
#define ENDED      4410
#define UNREACHED  4502

/* Where an end of a connection stands. */
#define NOBODY   0       /* there is no connection; or its handshake has not arrived */
#define TRYING   1       /* client: no hello yet */
#define LIVE     2       /* client: has had its hello */
#define ATTACHED 1       /* gateway: the session's */
#define OLD      2       /* gateway: superseded and still read */
#define WAITING  3       /* gateway: the game server is dialled for it */
#define GONE     4       /* closed on this side */

#define NONE  SLOTS      /* no connection */
#define OTHER (SLOTS+1)  /* the rival's, of which nothing is modelled but that it holds the session */

/* ---- rules */

/* Section 8: from the new hello on nothing of an older connection counts. It is
   thrown away unread here, which is the same as reading and ignoring it. */
#ifdef NO_FENCE
#define FENCE(s) conn[s].gateway = OLD
#else
#define FENCE(s) closeGateway(s)
#endif

/* Section 7: good is every issued generation not below the last confirmed one. */
#if defined(SUPERSEDE_AT_ISSUE)
#define GOOD(g) (g == issued)
#elif defined(NEVER_SUPERSEDED)
#define GOOD(g) (g <= issued)
#else
#define GOOD(g) (g >= confirmed && g <= issued)
#endif

/* Section 7: a resume that succeeds confirms the generation that it came with. */
#ifdef RESUME_CONFIRMS_NOTHING
#define CONFIRMED_BY_RESUME(g) confirmed
#else
#define CONFIRMED_BY_RESUME(g) g
#endif

/* Section 5: hello.received counts what was received, written or not. */
#ifdef HELLO_SAYS_WRITTEN
#define HELLO_RECEIVED written
#else
#define HELLO_RECEIVED receivedUp
#endif

/* Section 5: the gateway acks what has been written to the game server. */
#ifdef ACK_AT_ADMISSION
#define ACKABLE receivedUp
#else
#define ACKABLE written
#endif

/* Section 5: after the hello of a resume it acks anew, though it was acked on an older connection. */
#ifdef NO_ACK_AFTER_RESUME
#define OWES_ACK (ackedUp < ACKABLE)
#else
#define OWES_ACK (ACKABLE > 0)
#endif

/* What was received belongs to the session: it outlives its connection. */
#ifdef QUEUE_DIES_WITH_CONNECTION
#define LOSE_QUEUE dropQueue()
#else
#define LOSE_QUEUE skip
#endif

/* Section 5: only an ack lets go of a message, not that a socket took it. */
#ifdef FORGET_WHEN_SENT
#define FORGETTABLE sent
#else
#define FORGETTABLE acked
#endif

/* Section 6: `received` may be all that was ever written to one of the session's connections. */
#ifdef ONLY_NEWEST_SENT
#define EVER_SENT cursor
#else
#define EVER_SENT sent
#endif

/* Section 5: while a resume is under way that stated N, nothing beyond N is acked. */
#ifdef ACK_BEYOND_N
#define MAY_ACK(s) conn[s].last
#else
#define MAY_ACK(s) (attempt == NONE || conn[s].last <= conn[attempt].stated -> conn[s].last : conn[attempt].stated)
#endif

/* Section 5, answer_ms: a silent connection is taken for dead, which it may not be. */
#ifdef NEVER_DEAD
#define SEEMS_DEAD(s) false
#else
#define SEEMS_DEAD(s) (conn[s].mute)
#endif

/* Section 5: beside a resume that is under way the client takes data from the older connection. */
#ifdef DEAF_WHILE_TRYING
#define LISTENS (attempt == NONE)
#else
#define LISTENS true
#endif

/* Section 6: a 4409 is the client's own doing where another attempt is under
   way, or one was given up since the hello before the newest. It says "before
   this connection's own", which for one that has none yet would be the newest
   itself: NOT_BEFORE_HELLO. */
#define ELSEWHERE(s) (attempt != NONE && attempt != s)
#if defined(VERDICT_ALWAYS)
#define MINE(s) false
#elif defined(ONLY_UNDER_WAY)
#define MINE(s) ELSEWHERE(s)
#elif defined(ONLY_SINCE_NEWEST)
#define MINE(s) (ELSEWHERE(s) || gaveUp)
#elif defined(NOT_BEFORE_HELLO)
#define MINE(s) (ELSEWHERE(s) || gaveUp || (gaveUpBefore && s == live))
#else
#define MINE(s) (ELSEWHERE(s) || gaveUp || gaveUpBefore)
#endif

/* Section 6: what a refusal with `retry: false` says of the newest token and count is final. */
#ifdef NO_VERDICT_EVER
#define FINAL(s) false
#else
#define FINAL(s) (conn[s].token == token && conn[s].stated == received && live == NONE)
#endif

/* Section 3.2: of a state only the newest need come. */
#define STATE(i)   ((i) != 3)
#ifdef REPLACES_NEWEST
#define NEWER(i)   true
#else
#define NEWER(i)   ((i) + 1 <= numbered && STATE((i) + 1) || (i) + 2 <= numbered && STATE((i) + 2))
#endif
#ifdef REPLACES_ANYTHING
#define MAY_REPLACE(i) ((i) > base && (i) < numbered && (!STATE(i) || NEWER(i)) && !REPLACED(i))
#else
#define MAY_REPLACE(i) ((i) > base && (i) <= numbered && STATE(i) && NEWER(i) && !REPLACED(i))
#endif
#define REPLACED(i) ((replaced >> (i)) & 1)

/* A client that has a part of a run is told the rest. */
#ifdef WHOLE_RUN
#define TOLD_AGAIN(i) ((i) > 0 && REPLACED(i))
#else
#define TOLD_AGAIN(i) false
#endif

