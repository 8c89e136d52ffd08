/*
 * Durable sessions as a model: one client, one session that moves between nodes, an
 * engine that keeps its seat, a game server that is dialled anew, and faults: a kill, a
 * pause, a partition, an outage of the engine, cuts, doubts.
 *
 * It is about who owns the session and what is delivered when that changes. How a
 * connection finds its node is in cluster.pml; what happens on one node is in reseat.pml.
 *
 * One step is one event that a node, the client, the engine or the game server handles
 * at once. What is checked: each MUST; SETTLED, which every run must reach; and the
 * formula at the end.
 */

#include "ownerrules.pml"

/* ---- state */

typedef Connection {
	byte client, stage;      /* its two ends */
	byte at;                 /* the node that it was made or passed on to */
	bit  cut;                /* nothing goes in any more */
	byte token, stated;      /* of its handshake: the generation, N, */
	byte settled, handed;    /* A and C */
	byte seat;               /* CLAIMING, WON: the epoch that was read */
	byte gen;                /* of its hello */
	byte moved;              /* what its hello says */
	byte last;               /* client: newest message that came on it */
};

/* What a node keeps of the session. */
typedef Instance {
	byte stage;
	byte epoch;
	byte att, waiter;        /* the attached connection; the one that waits for the game server */
	byte game;               /* its connection to the game server */
	byte base, last;         /* downward: it holds (base, last] */
	byte sent, cursor;       /* given to any connection, to the attached one */
	byte got, wrote;         /* upward */
	bit  owing;              /* an ack is due */
	byte first, issued, confirmed; /* generations: its own are above first */
	byte moved;              /* how it came here, until a generation of its own is confirmed */
	bit  unsure;             /* claimed, and the confirm read has not been made */
	byte tag[NUMBERS];       /* which message of the game server has which number */
};

Connection conn[SLOTS];
chan up[SLOTS]   = [3] of { mtype, short };
chan down[SLOTS] = [4] of { mtype, short };
Instance inst[NODES];

/* The nodes, and what becomes of them. */
bit  alive[NODES], paused[NODES];
bit  parted[NODES];          /* cut off from the engine and the other nodes, not from clients and the game server */
bit  apart;                  /* nodes 0 and 1 do not reach each other */
bit  outage;                 /* the engine answers nobody */
byte claiming[NODES];        /* a node claims for one connection at a time */
byte kills, pauses, partitions, outages, stales, faults;

/* The engine: who wrote the seat at which epoch. */
byte seat;                   /* the newest epoch */
byte own[EPOCHS];
bit  ended;                  /* the seat says that the session is over */
byte seatConfirmed = 1;      /* the confirmed generation that it says */
byte orphan = NONE, orphanSeat;  /* a write of which nobody waits for the answer: whose */

/* The game server. */
byte games = 1;              /* connections accepted */
#if GAME == 1
byte newest = 1, newestEpoch; /* the one of the highest Reseat-Epoch */
#endif
byte said[GAMES];            /* messages sent on each */
byte seen;                   /* the newest message that it has taken; with REDELIVER=0 a set */
#if LAG
byte socket[GAMES], read[GAMES]; /* the newest message written to each connection, and read */
#endif
byte upNext[GAMES];          /* GAME=2: the number of the next message on each */

/* The client. */
byte live = NONE, attempt = NONE;
byte token = 1;              /* the newest generation that it holds */
byte received;               /* N: messages that the application saw */
byte settled, handed;        /* A and C */
byte cursor;                 /* given to the live connection */
bit  touched;                /* an older connection has done something since the attempt began */
short finished;

/* Used only by the checks. */
byte lastGame, lastTag;      /* what the application saw last */
byte helloBy[EPOCHS];        /* who has said hello at which epoch */
bit  blamed[NODES];          /* has been killed, stood still or been cut off */
bit  failover;               /* a claim was made */
bit  drained;                /* a hand-off was begun */

/* Only printed, or without a meaning between two steps. */
#ifdef SHORTEST
#define hidden
#endif
hidden mtype k;
hidden byte i, j, x, shift;
hidden short n, code;
hidden byte dialled, name[SLOTS];

#define MAX(a, b) (a > b -> a : b)
#define MUST(what, why) if :: (what) -> skip :: else -> printf(why); assert(false) fi
#ifdef OUTSIDE
#define INSIDE(what, why) skip
#else
#define INSIDE(what, why) MUST(what, why)
#endif

/* ---- connections */

inline drain(c) { do :: nempty(c) -> c?_,_ :: empty(c) -> break od; skip }

inline recycle(s) {
	if
	:: conn[s].client == GONE && conn[s].stage == GONE ->
		drain(up[s]); drain(down[s]);
		conn[s].client = NOBODY; conn[s].stage = NOBODY; conn[s].at = 0; conn[s].cut = 0;
		conn[s].token = 0; conn[s].stated = 0; conn[s].settled = 0; conn[s].handed = 0;
		conn[s].seat = 0; conn[s].gen = 0; conn[s].moved = 0; conn[s].last = 0
	:: else -> skip
	fi
}
inline closeClient(s) { conn[s].client = GONE; conn[s].last = 0; drain(down[s]); recycle(s) }
inline closeNode(s) { conn[s].stage = GONE; conn[s].seat = 0; drain(up[s]); recycle(s) }

/* Writing to a connection that is cut or closed succeeds, and has no effect. */
inline sayUp(s, kind, number) {
	if :: conn[s].cut || conn[s].stage == GONE -> skip :: else -> up[s]!kind,number fi
}
inline sayDown(s, kind, number) {
	if :: conn[s].cut || conn[s].client == GONE -> skip :: else -> down[s]!kind,number fi
}
#define ROOM_UP(s)   (len(up[s]) < 3)
#define ROOM_DOWN(s) (len(down[s]) < 3)

/* What a node can do. */
#define RUNS(i)    (alive[i] && !paused[i])
#define CONTACT(i) (!outage && !parted[i])
#define LINK(i, j) (i == j || (!parted[i] && !parted[j] && !(apart && i + j == 1)))
/* It owns the session, as far as the engine says. */
#define OWNS(i)    (inst[i].epoch == seat && own[seat] == i && !ended)

inline refuse(s) {
	printf("node %d: #%d is refused with %d\n", conn[s].at, name[s], code);
	sayDown(s, close, code); closeNode(s)
}

/* ---- an owner */

inline zero(i) {
	inst[i].stage = NOTHING; inst[i].epoch = 0; inst[i].att = NONE; inst[i].waiter = NONE; inst[i].game = 0;
	inst[i].base = 0; inst[i].last = 0; inst[i].sent = 0; inst[i].cursor = 0; inst[i].got = 0; inst[i].wrote = 0;
	inst[i].owing = 0; inst[i].first = 0; inst[i].issued = 0; inst[i].confirmed = 0; inst[i].moved = 0; inst[i].unsure = 0;
	x = 0;
	do :: x < NUMBERS -> inst[i].tag[x] = 0; x++ :: else -> break od;
	x = 0
}

/* F4: it lets the session go. A Close frame without close tells the client nothing but to resume. */
inline letGo(i) {
	printf("node %d: lets the session go, of epoch %d\n", i, inst[i].epoch);
	if :: inst[i].att != NONE -> conn[inst[i].att].cut = 1; closeNode(inst[i].att) :: else -> skip fi;
	if :: inst[i].waiter != NONE -> code = UNREACHABLE; refuse(inst[i].waiter) :: else -> skip fi;
	zero(i)
}

inline supersede(s) {
	printf("node %d: #%d gets close 4409\n", conn[s].at, name[s]);
	sayDown(s, close, SUPERSEDED); closeNode(s)
}

/* It goes on from what the client says, if that is further. What came from a connection to the game
   server then gets no number any more. */
inline rebase(s, i) {
	if
	:: conn[s].stated > inst[i].base ->
		inst[i].base = conn[s].stated; inst[i].last = conn[s].stated; inst[i].sent = conn[s].stated; inst[i].cursor = conn[s].stated;
		x = 0;
		do :: x < NUMBERS -> inst[i].tag[x] = 0; x++ :: else -> break od;
		x = 0
	:: else -> skip
	fi;
	RAISE(s, i)
}

inline await(s, i) {
	if :: inst[i].waiter != NONE -> supersede(inst[i].waiter) :: else -> skip fi;
	inst[i].waiter = s; conn[s].stage = WAITING
}

/* hello. */
inline attach(s, i) {
	if :: inst[i].att != NONE -> supersede(inst[i].att) :: else -> skip fi;
	if :: conn[s].token > inst[i].first -> inst[i].confirmed = MAX(conn[s].token, inst[i].confirmed); inst[i].moved = 0 :: else -> skip fi;
	inst[i].issued++; MUST(inst[i].issued - inst[i].first < PER_EPOCH, "PER_EPOCH is too small\n");
	inst[i].cursor = conn[s].stated; inst[i].att = s;
	inst[i].owing = (inst[i].wrote > 0);
	DROP_QUEUE(i);
	printf("node %d: #%d is attached: hello with epoch %d, generation %d, received %d\n", i, name[s], inst[i].epoch, inst[i].issued % PER_EPOCH, HELLO_RECEIVED(i));
	MUST(helloBy[inst[i].epoch] == 0 || helloBy[inst[i].epoch] == i + 1, "BROKEN O1: two nodes say hello at one epoch\n");
	MUST(!OWNS(i) || conn[s].token >= seatConfirmed, "BROKEN O6: a spent generation is attached\n");
	MUST(inst[i].epoch < seat || !ended, "BROKEN O7: a session that has ended is revived\n");
	helloBy[inst[i].epoch] = i + 1;
	conn[s].stage = ATTACHED; conn[s].gen = inst[i].issued; conn[s].token = 0; conn[s].moved = inst[i].moved;
	conn[s].settled = 0; conn[s].handed = 0;
	sayDown(s, hello, HELLO_RECEIVED(i))
}

/* R2: what came from the new connection moves up. */
inline renumber(s, i) {
	shift = conn[s].stated - inst[i].base;
	x = NUMBERS - 1;
	do
	:: x > conn[s].stated -> inst[i].tag[x] = inst[i].tag[x - shift]; x--
	:: else -> break
	od;
	do :: x > 0 -> inst[i].tag[x] = 0; x-- :: else -> break od;
	inst[i].base = conn[s].stated; inst[i].last = inst[i].last + shift; inst[i].sent = inst[i].sent + shift; inst[i].cursor = conn[s].stated;
	RAISE(s, i);
	shift = 0
}

/* The client has accepted no number of this claim's. */
#define UNACCEPTED(s, i) (inst[i].moved == FAILOVER && conn[s].token <= inst[i].first)

/* The checks of protocol section 2: token, received. */
inline check(s, i) {
	code = 0;
	if
	:: conn[s].token < inst[i].confirmed || conn[s].token > inst[i].issued -> code = BAD_TOKEN
	:: else ->
		if
		:: conn[s].stated < inst[i].base -> code = TOO_OLD
		:: conn[s].stated > inst[i].sent && !UNACCEPTED(s, i) -> code = TOO_FAR
		:: else -> skip
		fi
	fi
}

/* A resume at the node that has the session. */
inline answer(s, i) {
	check(s, i);
	if
	:: inst[i].stage == CLOSING || inst[i].stage == CLOSED || inst[i].stage == FROZEN || inst[i].stage == PUSHED -> code = UNREACHABLE; refuse(s)
	:: else ->
		if
		:: code -> refuse(s)
		:: !code && inst[i].stage == SEATED ->
			if
			:: inst[i].moved == 0 -> attach(s, i)
			:: else ->
				MUST(inst[i].moved == HANDOFF || conn[s].token <= inst[i].first || !DIALS_FIRST, "BROKEN: a new owner forgets what it has said\n");
				if
				:: inst[i].moved == FAILOVER && conn[s].token <= inst[i].first && REBASES -> rebase(s, i)
				:: else -> skip
				fi;
				await(s, i)
			fi
		:: !code && inst[i].stage == OPEN && UNACCEPTED(s, i) && (conn[s].stated > inst[i].base || FROM(s) > inst[i].wrote) && REBASES ->
			RENUMBER(s, i);
			await(s, i)
		:: !code && inst[i].stage == OPEN && (inst[i].unsure || inst[i].waiter != NONE) -> await(s, i)
		:: else -> attach(s, i)
		fi
	fi
}

/* ---- a front */

inline claim(s, v) {
	printf("node %d: claims the session for #%d from node %d\n", conn[s].at, name[s], own[v]);
	conn[s].stage = CLAIM; conn[s].seat = v; claiming[conn[s].at] = s
}

/* A node that has not got the session reads the seat, which may be an old one. */
inline consult(s, v) {
	i = conn[s].at; j = own[v];
	if
	:: ended -> code = NO_SESSION; refuse(s)
	:: !ended && conn[s].token < seatConfirmed -> code = BAD_TOKEN; refuse(s)
	:: !ended && conn[s].token >= seatConfirmed ->
	if
	:: j == i -> claim(s, v)
	:: j != i && RUNS(j) && LINK(i, j) -> conn[s].at = j
	:: j != i && !(RUNS(j) && LINK(i, j)) ->
		if
		:: JUDGED(i, j) -> claim(s, v)
		:: else -> code = UNREACHABLE; refuse(s)
		fi
	fi
	fi
}

/* A handshake has arrived at a node. */
inline arrive(s, v) {
	i = conn[s].at; j = own[EPOCH(conn[s].token)];
	if
	:: inst[i].stage != NOTHING && FENCED_BY(s, i) -> letGo(i)
	:: inst[i].stage != NOTHING && !FENCED_BY(s, i) -> answer(s, i)
	:: inst[i].stage == NOTHING && j != i && inst[j].stage != NOTHING && RUNS(j) && LINK(i, j) ->
		printf("node %d: passes #%d on to node %d\n", i, name[s], j);
		conn[s].at = j
	:: inst[i].stage == NOTHING && !(j != i && inst[j].stage != NOTHING && RUNS(j) && LINK(i, j)) ->
		if
		:: CONTACT(i) -> consult(s, v)
		:: else -> WITHOUT_CONTACT(s, v)
		fi
	fi
}

/* The engine compares and sets. A seat that has been written since it was read is read again. */
inline decide(s) {
	i = conn[s].at;
	if
	:: ACCEPTS(conn[s].seat) && conn[s].token >= seatConfirmed ->
		j = own[conn[s].seat];
		MUST(j == i || blamed[j], "BROKEN F5: a session is claimed from an owner that was well\n");
		seat = MAX(conn[s].seat + 1, seat); own[conn[s].seat + 1] = i; conn[s].stage = WON;
		printf("engine: node %d has the session, at epoch %d\n", i, conn[s].seat + 1)
	:: else ->
		printf("engine: node %d comes too late\n", i);
		conn[s].stage = ASKED; conn[s].seat = 0; claiming[i] = NONE
	fi
}

/* The answer does not come. The write may come to the engine all the same. */
inline giveUpClaim(s) {
	i = conn[s].at;
	if :: orphan == NONE -> orphan = i; orphanSeat = conn[s].seat :: else -> skip fi;
	claiming[i] = NONE; code = UNREACHABLE; refuse(s)
}

inline lateWrite() {
	if
	:: orphanSeat == seat && !ended -> printf("engine: node %d has the session, at epoch %d, and does not know it\n", orphan, seat + 1); seat++; own[seat] = orphan
	:: else -> skip
	fi;
	orphan = NONE; orphanSeat = 0
}

/* The claim was won. */
inline begin(s) {
	i = conn[s].at; claiming[i] = NONE;
	if
	:: inst[i].stage != NOTHING -> conn[s].stage = ASKED; conn[s].seat = 0
	:: else ->
		MUST(blamed[0] || blamed[1] || (NODES > 2 && blamed[NODES - 1]), "BROKEN: a failover though no node has failed\n");
		inst[i].epoch = conn[s].seat + 1; inst[i].stage = SEATED;
		inst[i].confirmed = seatConfirmed; inst[i].first = FIRST(s, inst[i].epoch); inst[i].issued = inst[i].first;
		inst[i].moved = FAILOVER; inst[i].unsure = 1; failover = 1;
		rebase(s, i); conn[s].seat = 0;
		await(s, i)
	fi
}

/* It writes the seat, if the engine answers, and dials the game server. */
inline dialGame(i) {
	if
	:: CONTACT(i) && !OWNS(i) && !DIALS_UNSEATED -> letGo(i)
	:: else ->
		LOSE_OLDER;
		inst[i].game = games; inst[i].stage = OPEN; upNext[games] = inst[i].wrote + 1; START_READING(games, inst[i].wrote);
		if :: GAME == 2 -> said[games] = inst[i].last :: else -> skip fi;
		NEWEST(i, games); games++;
		printf("node %d: dials the game server: connection %d, up from %d, down from %d\n", i, games, inst[i].wrote + 1, inst[i].last + 1)
	fi
}

/* The confirm read, and hello. */
inline greet(i) {
	if
	:: conn[inst[i].waiter].token < inst[i].confirmed -> code = BAD_TOKEN; refuse(inst[i].waiter); inst[i].waiter = NONE
	:: else ->
	if
	:: CONFIRMED_READ(i) ->
		n = inst[i].waiter; inst[i].waiter = NONE; inst[i].unsure = 0;
		attach(n, i)
	:: !CONFIRMED_READ(i) && !CONTACT(i) -> code = UNREACHABLE; refuse(inst[i].waiter); inst[i].waiter = NONE
	:: else -> letGo(i)
	fi
	fi
}

/* The session's node notices that a connection has ended. */
inline dropped(s) {
	printf("node %d: #%d is gone\n", conn[s].at, name[s]);
	i = conn[s].at;
	if
	:: inst[i].att == s -> inst[i].att = NONE; inst[i].owing = 0
	:: inst[i].waiter == s -> inst[i].waiter = NONE
	:: else -> skip
	fi;
	conn[s].cut = 1; closeNode(s)
}

inline fromClient(s) {
	i = conn[s].at;
	up[s]?k,n;
	if :: conn[s].gen -> inst[i].confirmed = MAX(conn[s].gen, inst[i].confirmed); inst[i].moved = 0; conn[s].gen = 0 :: else -> skip fi;
	if
	:: k == data ->
		INSIDE(n == inst[i].got + 1, "BROKEN: the owner counts the client's messages wrongly\n");
		inst[i].got++
	:: else -> skip
	fi
}

/* The game server takes message n on connection x. */
inline gameTakes(x, n) {
	printf("game server: message %d on connection %d\n", n, x + 1);
#if GAME == 1
	if
	:: x + 1 == newest -> MUST(n <= seen + 1, "BROKEN O4: a message is left out, for a game server that heeds Reseat-Epoch\n"); seen = MAX(n, seen)
	:: else -> skip
	fi
#elif GAME == 2
	if
	:: upNext[x] == seen + 1 -> MUST(n == seen + 1, "BROKEN O4: a game server that counts takes one message for another\n"); seen++
	:: else -> MUST(upNext[x] <= seen && n <= seen, "BROKEN O4: a game server that counts misses a message\n")
	fi;
	upNext[x]++
#elif REDELIVER
	MUST(n <= seen + 1, "BROKEN O4: a message is left out\n");
	MUST(n > seen || failover, "BROKEN O4: a message comes twice though no owner was lost\n");
	MUST(n > settled || n > seen || x + 1 < games, "BROKEN O4: a settled message comes again\n");
	seen = MAX(n, seen)
#else
	MUST(!(seen & (1 << n)), "BROKEN O4: a message comes twice, redelivery off\n");
	MUST(failover || n == 1 || (seen & (1 << (n - 1))), "BROKEN O4: a message is left out though no owner was lost\n");
	seen = seen | (1 << n)
#endif
}

/* F6: what it says to the game server of its own accord. */
inline words(i) {
	printf("node %d: the grace period is over\n", i);
	MUST(OWNS(i), "BROKEN O9: an owner speaks that was overtaken\n");
	if :: OWNS(i) && CONTACT(i) -> ended = 1 :: else -> skip fi;
	zero(i)
}

/* ---- the hand-off */

inline push(i, z) {
	printf("node %d: pushes the session to node %d\n", i, z);
	inst[i].stage = FROZEN;
	inst[z].stage = PUSHED; inst[z].epoch = inst[i].epoch + 1;
	inst[z].base = inst[i].base; inst[z].last = inst[i].last; inst[z].sent = inst[i].sent; inst[z].cursor = inst[i].sent;
	inst[z].got = inst[i].wrote; inst[z].wrote = inst[i].wrote;
	inst[z].confirmed = inst[i].confirmed; inst[z].first = inst[z].epoch * PER_EPOCH; inst[z].issued = inst[z].first;
	inst[z].moved = HANDOFF;
	x = 0;
	do :: x < NUMBERS -> inst[z].tag[x] = inst[i].tag[x]; x++ :: else -> break od;
	x = 0;
	CLOSE_EARLY(i)
}

inline dismiss(i) {
	if
	:: inst[i].att != NONE -> printf("node %d: #%d gets close 4503\n", i, name[inst[i].att]); sayDown(inst[i].att, close, DRAINING); closeNode(inst[i].att); inst[i].att = NONE
	:: else -> skip
	fi
}

/* The node that it was pushed to writes the seat. */
inline takeSeat(z) {
	if
	:: inst[z].epoch == seat + 1 && !ended ->
		seat++; own[seat] = z; inst[z].stage = SEATED;
		printf("engine: node %d has the session, at epoch %d\n", z, seat)
	:: else -> printf("engine: node %d comes too late\n", z); zero(z)
	fi
}

/* The old owner goes on: it writes the seat itself. */
inline takeBack(i) {
	if
	:: OWNS(i) ->
		printf("node %d: keeps the session\n", i);
		seat++; own[seat] = i;
		inst[i].epoch = seat; inst[i].first = seat * PER_EPOCH; inst[i].issued = inst[i].first; inst[i].moved = HANDOFF; inst[i].stage = SEATED;
		dismiss(i)
	:: else -> letGo(i)
	fi
}

/* ---- the client */

/* Its node stands still, or it was cut. */
#define STALLED(s) (paused[conn[s].at] || conn[s].cut)

inline dial(s, i) {
	if :: live != NONE && !STALLED(live) -> printf("client: doubts #%d\n", name[live]); faults++ :: else -> skip fi;
	dialled++; name[s] = dialled;
	printf("client: resume #%d at node %d with epoch %d, generation %d, received %d, settled %d of %d\n", name[s], i, token / PER_EPOCH, token % PER_EPOCH, received, settled, handed);
	conn[s].client = TRYING; conn[s].stage = ASKED; conn[s].at = i;
	conn[s].token = token; conn[s].stated = received; conn[s].settled = settled; conn[s].handed = handed;
	attempt = s; touched = 0
}

inline finish(why) {
	printf("client: the application gets %d\n", why);
	finished = why;
	MUST(why != BAD_TOKEN, "BROKEN: 4401 is a verdict\n");
	MUST(why != TOO_FAR && why != TOO_OLD, "BROKEN: a client that keeps the rules is refused for its count\n");
	MUST(why != NO_SESSION || ended, "BROKEN: 4404 is a verdict though the session lives\n");
	if :: live != NONE -> closeClient(live) :: else -> skip fi;
	live = NONE; attempt = NONE
}

inline onHello(s) {
	if
	:: conn[s].moved == FAILOVER && touched && REFUSES_MOVED ->
		printf("client: hello on #%d, which it does not take\n", name[s]);
		attempt = NONE; closeClient(s)
	:: else ->
		printf("client: hello on #%d, received %d\n", name[s], n);
		INSIDE(n >= settled && n <= handed, "BROKEN: hello names less than was acked, or what was never sent\n");
		MUST(!REDELIVER || GAME || n <= seen, "BROKEN O5: what hello names was not written\n");
		MUST(EPOCH(conn[s].gen) >= EPOCH(token), "BROKEN O2: the client takes a hello of an older epoch\n");
		if :: live != NONE -> closeClient(live) :: else -> skip fi;
		live = s; attempt = NONE; touched = 0;
		conn[s].client = LIVE; conn[s].last = conn[s].stated; conn[s].stated = 0; conn[s].moved = 0;
		token = conn[s].gen; settled = MAX(n, settled); cursor = n;
		sayUp(s, ack, 0)
	fi
}

/* The application sees a message of the game server's. */
inline deliver() {
	received++;
#if GAME == 2
	printf("client: the application sees message %d\n", n);
	MUST(n == received, "BROKEN O3: the application sees a gap or a repeat\n");
#else
	printf("client: the application sees message %d of connection %d\n", n % PER_GAME, n / PER_GAME + 1);
	if
	:: n / PER_GAME == lastGame -> MUST(n % PER_GAME == lastTag + 1, "BROKEN O3: the application sees a gap or a repeat\n")
	:: n / PER_GAME > lastGame ->
		MUST(n % PER_GAME == 1, "BROKEN O3: the application sees a gap at the new connection's beginning\n");
		MUST(failover || lastTag == said[lastGame], "BROKEN O3: the tail is missing though no owner was lost\n")
	:: else -> MUST(false, "BROKEN O3: a message of an older connection\n")
	fi;
	lastGame = n / PER_GAME; lastTag = n % PER_GAME;
#endif
	if :: attempt != NONE -> touched = 1 :: else -> skip fi
}

inline onMessage(s) {
	down[s]?k,n;
	if
	:: k == hello -> onHello(s)
	:: k == data ->
		conn[s].last++;
		if :: conn[s].last > received -> deliver() :: else -> skip fi
	:: k == ack ->
		if
		:: n > settled ->
			printf("client: %d is acked on #%d\n", n, name[s]);
			MUST(!REDELIVER || GAME || n <= seen, "BROKEN O5: what is acked was not written\n");
			settled = n; if :: attempt != NONE -> touched = 1 :: else -> skip fi
		:: else -> skip
		fi
	:: k == close && s == live ->
		printf("client: close %d on #%d\n", n, name[s]);
		MUST(n != ENDED, "BROKEN: the application gets end though the session lives\n");
		live = NONE; closeClient(s)
	:: k == close && s == attempt ->
		attempt = NONE; closeClient(s);
		code = n;
		if :: code == UNREACHABLE || code == SUPERSEDED || code == DRAINING -> skip :: else -> finish(code) fi
	:: else -> closeClient(s)
	fi
}

/* ---- processes */

#define DEAD(s)    (paused[conn[s].at] || (conn[s].cut && empty(down[s])))
#define ENGINE_SLOW (outage || parted[conn[s].at] || faults < FAULTS)

proctype ClientEnd(byte s) {
endClient:
	do
	:: d_step { nempty(down[s]) -> onMessage(s) }
	:: d_step { s == attempt && conn[s].client == TRYING && DEAD(s) -> printf("client: gives #%d up\n", name[s]); attempt = NONE; closeClient(s) }
	:: d_step { s == attempt && conn[s].client == TRYING && !STALLED(s) && faults < FAULTS -> printf("client: gives #%d up\n", name[s]); faults++; attempt = NONE; closeClient(s) }
	:: d_step { s == live && DEAD(s) -> printf("client: #%d is lost\n", name[s]); live = NONE; closeClient(s) }
	:: d_step { s == live && ROOM_UP(s) && cursor < UP ->
		cursor++; handed = MAX(cursor, handed);
		printf("client: sends message %d on #%d\n", cursor, name[s]);
		if :: attempt != NONE && COUNTS_SENT -> touched = 1 :: else -> skip fi;
		sayUp(s, data, cursor) }
	od
}

#define TO_NODE(s)   RUNS(conn[s].at)
#define HAS(s)       inst[conn[s].at]
#define IS_LIVE(s)   (conn[s].stage == ATTACHED && TO_NODE(s) && HAS(s).stage != FROZEN)

proctype NodeEnd(byte s) {
endNode:
	do
	:: d_step { conn[s].stage == ASKED && TO_NODE(s) && claiming[conn[s].at] == NONE -> arrive(s, seat) }
#if STALES
	:: d_step { conn[s].stage == ASKED && TO_NODE(s) && claiming[conn[s].at] == NONE && stales < STALES && seat > 0 && HAS(s).stage == NOTHING && CONTACT(conn[s].at) ->
		printf("engine: says what was, not what is\n"); stales++; arrive(s, seat - 1) }
#endif
#ifdef STALE_NO_RECORD
	:: d_step { conn[s].stage == ASKED && TO_NODE(s) && claiming[conn[s].at] == NONE && stales < STALES && HAS(s).stage == NOTHING && CONTACT(conn[s].at) ->
		printf("engine: there is no seat\n"); stales++; code = NO_SESSION; refuse(s) }
#endif
	:: d_step { conn[s].stage == CLAIMING && TO_NODE(s) && CONTACT(conn[s].at) -> decide(s) }
	:: d_step { conn[s].stage == CLAIMING && TO_NODE(s) && ENGINE_SLOW -> if :: CONTACT(conn[s].at) -> faults++ :: else -> skip fi; giveUpClaim(s) }
	:: d_step { conn[s].stage == WON && TO_NODE(s) -> begin(s) }
	:: d_step { conn[s].stage == ATTACHED && IS_LIVE(s) && nempty(up[s]) -> fromClient(s) }
	:: d_step { (conn[s].stage == ATTACHED || conn[s].stage == WAITING) && TO_NODE(s) && empty(up[s]) && (conn[s].cut || conn[s].client == GONE) -> dropped(s) }
	:: d_step { conn[s].stage == ATTACHED && IS_LIVE(s) && ROOM_DOWN(s) && HAS(s).cursor < HAS(s).last ->
		i = conn[s].at; inst[i].cursor++; inst[i].sent = MAX(inst[i].cursor, inst[i].sent);
		printf("node %d: writes message %d to #%d\n", i, inst[i].cursor, name[s]);
		sayDown(s, data, inst[i].tag[inst[i].cursor]) }
	:: d_step { conn[s].stage == ATTACHED && IS_LIVE(s) && ROOM_DOWN(s) && HAS(s).owing ->
		i = conn[s].at; inst[i].owing = 0;
		printf("node %d: acks %d on #%d\n", i, inst[i].wrote, name[s]);
		sayDown(s, ack, inst[i].wrote) }
	/* nobody is there any more, at either end */
	:: d_step { conn[s].stage == ASKED && conn[s].client == GONE && conn[s].cut -> closeNode(s) }
	od
}

proctype Network(byte s) {
endNetwork:
	do
	:: d_step { (conn[s].client == TRYING || conn[s].client == LIVE) && !conn[s].cut && faults < FAULTS -> printf("network: cuts #%d\n", name[s]); faults++; conn[s].cut = 1 }
	:: d_step { nempty(down[s]) && conn[s].cut -> drain(down[s]) }
	:: d_step { nempty(up[s]) && (conn[s].cut || conn[s].client == GONE) -> drain(up[s]) }
	/* a handshake is lost, or arrives though nobody waits any more */
	:: d_step { conn[s].stage == ASKED && (conn[s].client == GONE || conn[s].cut) -> printf("network: loses the handshake of #%d\n", name[s]); closeNode(s) }
	od
}

#define FREE(s)  (conn[s].client == NOBODY && conn[s].stage == NOBODY)
#define MAY_DIAL (!finished && attempt == NONE && (live == NONE || STALLED(live) || faults < FAULTS))
#define FIRST_FREE(s) (FREE(s) && (s == 0 || !FREE(0)) && (s < 2 || !FREE(1)))

/* The load balancer leads the client to any node that lives. */
proctype Client() {
endResume:
	do
	:: d_step { MAY_DIAL && alive[0] && FIRST_FREE(0) -> dial(0, 0) }
	:: d_step { MAY_DIAL && alive[0] && FIRST_FREE(1) -> dial(1, 0) }
	:: d_step { MAY_DIAL && alive[1] && FIRST_FREE(0) -> dial(0, 1) }
	:: d_step { MAY_DIAL && alive[1] && FIRST_FREE(1) -> dial(1, 1) }
#if NODES > 2
	:: d_step { MAY_DIAL && alive[2] && FIRST_FREE(0) -> dial(0, 2) }
	:: d_step { MAY_DIAL && alive[2] && FIRST_FREE(1) -> dial(1, 2) }
#endif
#if SLOTS > 2
	:: d_step { MAY_DIAL && alive[0] && FIRST_FREE(2) -> dial(2, 0) }
	:: d_step { MAY_DIAL && alive[1] && FIRST_FREE(2) -> dial(2, 1) }
#if NODES > 2
	:: d_step { MAY_DIAL && alive[2] && FIRST_FREE(2) -> dial(2, 2) }
#endif
#endif
	od
}

/* A node has ended. */
inline endConnections(i) {
	x = 0;
	do
	:: x < SLOTS ->
		if
		:: conn[x].client != NOBODY && conn[x].stage != NOBODY && conn[x].stage != GONE && conn[x].at == i ->
			if
			:: conn[x].stage == CLAIMING && orphan == NONE -> orphan = i; orphanSeat = conn[x].seat
			:: else -> skip
			fi;
			conn[x].cut = 1; closeNode(x)
		:: else -> skip
		fi;
		x++
	:: else -> break
	od;
	x = 0; claiming[i] = NONE
}

#define CAN_TAKE(i, z) (i != z && inst[i].stage == CLOSED && RUNS(i) && RUNS(z) && LINK(i, z) && inst[z].stage == NOTHING && claiming[z] == NONE)
#define PENDING(z) (inst[z].stage == PUSHED)
#if NODES > 2
#define TAKER(i) (PENDING(0) || PENDING(1) || PENDING(2) || CAN_TAKE(i, 0) || CAN_TAKE(i, 1) || CAN_TAKE(i, 2))
#else
#define TAKER(i) (PENDING(0) || PENDING(1) || CAN_TAKE(i, 0) || CAN_TAKE(i, 1))
#endif
#define HANDED_OVER(i) (own[seat] != i && RUNS(own[seat]) && LINK(i, own[seat]))

/* A node that has the session. */
proctype Owner(byte me) {
endOwner:
	do
	/* the game server sends a message */
	:: d_step { (inst[me].stage == OPEN || (inst[me].stage == CLOSING && READS_TO_END)) && RUNS(me) && said[inst[me].game] < LIMIT(inst[me].game) && inst[me].last < NUMBERS - 1 ->
		said[inst[me].game]++; inst[me].last++;
		inst[me].tag[inst[me].last] = (GAME == 2 -> said[inst[me].game] : inst[me].game * PER_GAME + said[inst[me].game]) }
	:: d_step { inst[me].stage == OPEN && RUNS(me) && inst[me].wrote < inst[me].got ->
		inst[me].wrote++; inst[me].owing = (inst[me].att != NONE);
#if LAG
		socket[inst[me].game] = inst[me].wrote }
#else
		gameTakes(inst[me].game, inst[me].wrote) }
#endif
	:: d_step { inst[me].stage == SEATED && MAY_DIAL_GAME(me) && RUNS(me) -> dialGame(me) }
	:: d_step { MAY_GREET(me) && inst[me].waiter != NONE && RUNS(me) -> greet(me) }
#if defined(REPLACES)
	/* the game server has closed its connection: the newer one has taken its place */
	:: d_step { inst[me].stage == REPLACED && RUNS(me) -> printf("node %d: end\n", me);
		if :: inst[me].att != NONE -> sayDown(inst[me].att, close, ENDED); closeNode(inst[me].att) :: else -> skip fi;
		zero(me) }
#endif
	/* F4: it learns that it was overtaken, or that the session has ended */
	:: d_step { LETS_GO && inst[me].stage != NOTHING && inst[me].stage != PUSHED && RUNS(me) && CONTACT(me) && !OWNS(me) -> letGo(me) }
	:: d_step { inst[me].stage != NOTHING && RUNS(me) && CONTACT(me) && OWNS(me) && seatConfirmed < inst[me].confirmed -> seatConfirmed = inst[me].confirmed }
#if GRACE
	:: d_step { GRACE && (inst[me].stage == SEATED || inst[me].stage == OPEN) && inst[me].att == NONE && inst[me].waiter == NONE && RUNS(me) && MAY_SPEAK(me) -> words(me) }
#endif
#if DRAIN
	/* the hand-off */
	:: d_step { DRAIN && !drained && inst[me].stage == OPEN && inst[me].waiter == NONE && RUNS(me) ->
		printf("node %d: drains, and closes connection %d\n", me, inst[me].game + 1);
		drained = 1; inst[me].stage = CLOSING }
	:: d_step { inst[me].stage == CLOSING && RUNS(me) -> printf("game server: closes connection %d\n", inst[me].game + 1); inst[me].stage = CLOSED }
#ifdef HANDOFF_UPSTREAM_UNREAD
	:: d_step { inst[me].stage == CLOSING && said[inst[me].game] < LIMIT(inst[me].game) -> printf("game server: a message that nobody reads\n"); said[inst[me].game]++ }
#endif
	:: d_step { CAN_TAKE(me, 0) -> push(me, 0) }
	:: d_step { CAN_TAKE(me, 1) -> push(me, 1) }
#if NODES > 2
	:: d_step { CAN_TAKE(me, 2) -> push(me, 2) }
#endif
	:: d_step { inst[me].stage == PUSHED && RUNS(me) && CONTACT(me) -> takeSeat(me) }
	:: d_step { inst[me].stage == FROZEN && RUNS(me) && HANDED_OVER(me) ->
		printf("node %d: has handed the session over\n", me);
		dismiss(me); zero(me) }
	/* no answer, or nobody takes it */
	:: d_step { (inst[me].stage == FROZEN || inst[me].stage == CLOSED) && RUNS(me) && CONTACT(me) && (faults < FAULTS || !TAKER(me)) ->
		if :: TAKER(me) -> faults++ :: else -> skip fi;
		takeBack(me) }
	:: d_step { DRAIN && drained && alive[me] && me == 0 && inst[me].stage == NOTHING && claiming[me] == NONE && HANDED_OVER(me) -> printf("node %d: exits\n", me); alive[me] = 0; endConnections(me) }
#endif
	od
}

/* What happens to a node. A pause and a partition end, at some time. */
#define OTHERS(i) ((i != 0 && alive[0]) || (i != 1 && alive[1]) || (NODES > 2 && i != 2 && alive[NODES - 1]))

proctype Faults(byte me) {
endFaults:
	do
	:: d_step { false -> skip } /* none of these may be asked for */
#if KILLS
	:: d_step { alive[me] && kills < KILLS && OTHERS(me) -> printf("network: node %d is killed\n", me);
		kills++; alive[me] = 0; paused[me] = 0; parted[me] = 0; blamed[me] = 1;
		endConnections(me); zero(me) }
#endif
#if PAUSES
	:: d_step { alive[me] && !paused[me] && pauses < PAUSES -> printf("network: node %d stands still\n", me); pauses++; paused[me] = 1; blamed[me] = 1 }
	:: d_step { paused[me] -> printf("network: node %d goes on\n", me); paused[me] = 0 }
#endif
#if PARTITIONS
	:: d_step { alive[me] && !parted[me] && partitions < PARTITIONS -> printf("network: node %d is cut off\n", me); partitions++; parted[me] = 1; blamed[me] = 1 }
	:: d_step { parted[me] -> printf("network: node %d is no longer cut off\n", me); parted[me] = 0 }
#endif
	od
}

proctype Engine() {
endEngine:
	do
#if OUTAGES
	:: d_step { outages < OUTAGES -> printf("network: the engine is lost\n"); outages++; outage = 1 }
	:: d_step { outage -> printf("network: the engine is back\n"); outage = 0 }
#endif
#if PARTITIONS
	:: d_step { partitions < PARTITIONS && !apart -> printf("network: nodes 0 and 1 lose each other\n"); partitions++; apart = 1 }
	:: d_step { apart -> printf("network: nodes 0 and 1 reach each other\n"); apart = 0 }
#endif
	:: d_step { orphan != NONE && !outage -> lateWrite() }
	:: d_step { orphan != NONE -> orphan = NONE; orphanSeat = 0 }
	od
}

#if LAG
/* The game server reads what was written, at some time. */
proctype Game(byte g) {
endGame:
	do
	:: d_step { read[g] < socket[g] && (GAME < 2 || upNext[g] <= seen + 1) -> read[g]++; gameTakes(g, read[g]) }
	od
}
#endif

/* ---- what every run must reach */

#define CURRENT (live < SLOTS && conn[live].stage == ATTACHED && inst[conn[live].at].att == live && !conn[live].cut && OWNS(conn[live].at))
#define DELIVERED (CURRENT && received == inst[conn[live].at].last && settled == UP && handed == UP)
#define SETTLED (DELIVERED || (finished == NO_SESSION && ended))

/* At rest one node has the session, and one connection is open. */
#define IDLE(s) (s == live || conn[s].stage == NOBODY || conn[s].stage == GONE)
#define LETS(i) (inst[i].stage == NOTHING || OWNS(i))
#define ALONE (attempt == NONE && IDLE(0) && IDLE(1) && (SLOTS < 3 || IDLE(SLOTS - 1)) && LETS(0) && LETS(1) && (NODES < 3 || LETS(NODES - 1)))

proctype Rest() {
endRest:
	timeout ->
	MUST(SETTLED, "BROKEN O10: nothing goes on, and the client has neither its session nor an answer\n");
	MUST(ALONE, "BROKEN O10: nothing goes on, and two nodes have the session\n")
}

/* Shows that something can be reached at all: this check is to fail. */
#ifdef REACH
proctype Witness() {
endWitness:
	(REACH) -> printf("REACHED\n"); assert(false)
}
#endif

init {
	byte b;
	atomic {
		do :: b < NODES -> inst[b].att = NONE; inst[b].waiter = NONE; claiming[b] = NONE; b++ :: else -> break od;
		inst[0].stage = OPEN; inst[0].issued = 1; upNext[0] = 1;
		run Client(); run Engine(); run Rest();
#ifdef REACH
		run Witness();
#endif
		b = 0;
		do :: b < NODES -> alive[b] = 1; run Owner(b); run Faults(b); b++ :: else -> break od;
#if LAG
		b = 0;
		do :: b < GAMES -> run Game(b); b++ :: else -> break od;
#endif
		b = 0;
		do :: b < SLOTS -> run ClientEnd(b); run NodeEnd(b); run Network(b); b++ :: else -> break od
	}
}

#ifdef ALWAYS_SETTLES
ltl settles { <> SETTLED }
#endif
