/*
 * The bounds of the model of durable sessions, its words, and the rules that its checks
 * depend on, each with the ways to break it: -DNO_FENCE and so on.
 */

/* ---- bounds, each to be set with -D */

#ifndef NODES
#define NODES 2      /* node 0 has the session at first */
#endif
#ifndef SLOTS
#define SLOTS 2      /* connections of the client that exist at once */
#endif
#ifndef DOWN
#define DOWN 2       /* messages of the game server on its first connection */
#endif
#ifndef AGAIN
#define AGAIN 1      /* on each further one */
#endif
#ifndef UP
#define UP 0         /* messages of the application */
#endif
#ifndef KILLS
#define KILLS 0      /* nodes that are killed */
#endif
#ifndef PAUSES
#define PAUSES 0     /* times that a node stands still for a while */
#endif
#ifndef PARTITIONS
#define PARTITIONS 0 /* times that a node is cut off for a while, or two nodes lose each other */
#endif
#ifndef OUTAGES
#define OUTAGES 0    /* times that the engine answers nobody for a while */
#endif
#ifndef STALES
#define STALES 0     /* reads that say what was */
#endif
#ifndef FAULTS
#define FAULTS 0     /* cuts, attempts and claims given up, resumes beside a live connection: in all */
#endif
#ifndef GAMES
#define GAMES 7      /* connections to the game server */
#endif
#ifndef EPOCHS
#define EPOCHS 7
#endif
#define NUMBERS (DOWN + (GAMES - 1) * AGAIN + 1)

#define PER_GAME 4
#if GAME == 2
#define LIMIT(g) DOWN
#else
#define LIMIT(g) (g == 0 -> DOWN : AGAIN)
#endif

/* What may happen as well: -DGRACE=1 and so on. */
#ifndef GRACE
#define GRACE 0      /* the grace period ends */
#endif
#ifndef DRAIN
#define DRAIN 0      /* node 0 hands the session over */
#endif
#ifndef REDELIVER
#define REDELIVER 1  /* --failover-redeliver on */
#endif
#ifndef LAG
#define LAG 0        /* the game server reads late */
#endif
#if LAG
#define START_READING(g, n) socket[g] = n; read[g] = n
#else
#define START_READING(g, n) skip
#endif
#ifndef GAME
#define GAME 0       /* the game server takes what comes on any connection; with 1 on the newest alone (it heeds
                        Reseat-Epoch); with 2 it counts, by Reseat-Up-From, and goes on from Reseat-Down-From */
#endif

/* ---- words */

mtype = { hello, data, ack, close };

#define TOO_FAR     4400
#define BAD_TOKEN   4401
#define NO_SESSION  4404
#define TOO_OLD     4408
#define SUPERSEDED  4409
#define ENDED       4410
#define DRAINING    4503
#define UNREACHABLE 4504

/* Where a connection stands at the nodes. */
#define NOBODY   0  /* there is none */
#define ASKED    1  /* the handshake is on its way to a node, or has been passed on to one */
#define CLAIMING 2  /* that one has asked the engine for the seat */
#define WON      3  /* and has got it */
#define WAITING  4  /* the game server is dialled */
#define ATTACHED 5  /* the owner has answered hello */
#define GONE     6  /* closed */

/* Where the client's end stands. */
#define TRYING   1
#define LIVE     2

/* Where an owner stands. */
#define NOTHING  0  /* the node has not got the session */
#define SEATED   1  /* no connection to the game server */
#define OPEN     2
#define CLOSING  3  /* draining: it has sent its Close, and reads on */
#define CLOSED   4  /* draining: it has read the game server's */
#define FROZEN   5  /* draining: it has pushed the session to another node */
#define PUSHED   6  /* this node was pushed it, and has not got the seat */
#define REPLACED 7  /* the game server has closed its connection */

/* What a hello says of how the session came to its node. */
#define FAILOVER 1
#define HANDOFF  2

#define NONE SLOTS

/* ---- rules */

/* F2: the epoch lies in the high bits of a generation. */
#define PER_EPOCH 16
#ifdef EPOCH_NOT_IN_GEN
#define EPOCH(g) 0
#define FIRST(s, e) conn[s].token
#else
#define EPOCH(g) ((g) / PER_EPOCH)
#define FIRST(s, e) (PER_EPOCH * (e))
#endif

/* F3: a claim is a conditional write, which decides. What was read decides nothing. */
#ifdef READ_DECIDES
#define ACCEPTS(v) true
#else
#define ACCEPTS(v) (v == seat && !ended)
#endif

/* F1: the seat is written before anything else is done. */
#ifdef HELLO_BEFORE_CLAIM
#define DIALS_UNSEATED 1
#define CLAIM WON
#else
#define DIALS_UNSEATED 0
#define CLAIM CLAIMING
#endif

/* F3: before hello the seat is read again. */
#if defined(NO_CONFIRM_READ) || defined(HELLO_BEFORE_CLAIM)
#define CONFIRMED_READ(i) true
#elif defined(HELLO_FIRST)
#define CONFIRMED_READ(i) (CONTACT(i) && OWNS(i))
#else
#define CONFIRMED_READ(i) (!inst[i].unsure || CONTACT(i) && OWNS(i))
#endif

/* F5: nobody claims from an owner that is not gone or silent. */
#ifdef CLAIM_UNJUDGED
#define JUDGED(i, j) true
#else
#define JUDGED(i, j) (!alive[j] || paused[j] || parted[j])
#endif

/* Silent is who is heard by nobody: a node that hears nobody judges nobody. */
#ifdef BLIND_JUDGE
#define WITHOUT_CONTACT(s, v) if :: ended || RUNS(own[v]) && LINK(conn[s].at, own[v]) -> code = UNREACHABLE; refuse(s) :: else -> claim(s, v) fi
#else
#define WITHOUT_CONTACT(s, v) code = UNREACHABLE; refuse(s)
#endif

/* F4: who meets a higher epoch lets the session go. */
#ifdef NO_FENCE
#define LETS_GO 0
#define FENCED_BY(s, i) 0
#else
#define LETS_GO 1
#define FENCED_BY(s, i) (EPOCH(conn[s].token) > inst[i].epoch)
#endif

/* F6: an owner speaks to the game server of its own accord only when a conditional write has
   told it that it is the owner. */
#if defined(WORDS_WITHOUT_CONTACT)
#define MAY_SPEAK(i) true
#elif defined(WORDS_ON_RECENT_CONTACT)
#define MAY_SPEAK(i) CONTACT(i)
#else
#define MAY_SPEAK(i) (CONTACT(i) && OWNS(i))
#endif

/* The new owner goes on from what the client says: from A, or with redelivery off from C. */
#if defined(RECEIVED_WITHOUT_A)
#define FROM(s) 0
#elif REDELIVER
#define FROM(s) conn[s].settled
#else
#define FROM(s) conn[s].handed
#endif

/* hello.received names only what is written; what waits behind that is dropped. */
#ifdef RECEIVED_NAMES_QUEUE
#define DROP_QUEUE(i) skip
#define HELLO_RECEIVED(i) inst[i].got
#else
#define DROP_QUEUE(i) inst[i].got = inst[i].wrote
#define HELLO_RECEIVED(i) inst[i].wrote
#endif

/* R1: a hello after a failover is not taken if on an older connection anything was taken in or settled
   since the handshake. What was sent on it does not count: with COUNT_SENT it does. */
#ifdef MOVED_HELLO_TAKEN
#define REFUSES_MOVED 0
#else
#define REFUSES_MOVED 1
#endif
#ifdef COUNT_SENT
#define COUNTS_SENT 1
#else
#define COUNTS_SENT 0
#endif

/* R2: while nobody has confirmed a generation of the new owner's, a resume from before it that is further
   raises both its counts. What the connection to the game server was told does not hold then: it is closed,
   and another one is made. */
#ifdef ONLY_DOWN
#define RAISE(s, i) skip
#else
#define RAISE(s, i) inst[i].wrote = MAX(FROM(s), inst[i].wrote); inst[i].got = inst[i].wrote
#endif
#ifdef NO_RENUMBER
#define REBASES 0
#else
#define REBASES 1
#endif
#ifdef RENUMBER_IN_PLACE
#define RENUMBER(s, i) renumber(s, i)
#else
#define RENUMBER(s, i) \
	printf("node %d: dials the game server anew\n", i); \
	if :: inst[i].att != NONE -> supersede(inst[i].att); inst[i].att = NONE; inst[i].owing = 0 :: else -> skip fi; \
	rebase(s, i); inst[i].game = 0; inst[i].stage = SEATED
#endif

/* The game server is dialled before hello. HELLO_FIRST is the other order: when the client has confirmed
   the new owner's hello, and so has left the old owner, after which nothing that it is told changes. */
#ifdef HELLO_FIRST
#define DIALS_FIRST 0
#define MAY_DIAL_GAME(i) (inst[i].moved == 0 && CONTACT(i))
#define MAY_GREET(i) (inst[i].stage == OPEN || inst[i].stage == SEATED)
#else
#define DIALS_FIRST 1
#define MAY_DIAL_GAME(i) (inst[i].waiter != NONE)
#define MAY_GREET(i) (inst[i].stage == OPEN)
#endif

/* A game server that heeds Reseat-Epoch takes nothing from a connection of a lower one. */
#if GAME == 1
#define NEWEST(i, g) if :: inst[i].epoch >= newestEpoch -> newestEpoch = inst[i].epoch; newest = g + 1 :: else -> skip fi
#else
#define NEWEST(i, g) skip
#endif

/* A game server may close its older connections when a newer one is there. The session ends at a node that
   reads that while its client still listens there. */
#ifdef REPLACES
#define LOSE_OLDER x = 0; do :: x < NODES -> if :: x != i && inst[x].stage == OPEN -> inst[x].stage = REPLACED :: else -> skip fi; x++ :: else -> break od; x = 0
#else
#define LOSE_OLDER skip
#endif

/* The hand-off: the client is sent away once another node has the seat. */
#ifdef HANDOFF_BEFORE_SEAT
#define CLOSE_EARLY(i) dismiss(i); zero(i)
#else
#define CLOSE_EARLY(i) skip
#endif

/* The hand-off: the old owner reads what the game server says until its Close. */
#ifdef HANDOFF_UPSTREAM_UNREAD
#define READS_TO_END 0
#else
#define READS_TO_END 1
#endif
