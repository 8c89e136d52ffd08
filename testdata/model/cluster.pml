/*
 * A cluster as a model: one client, one session at node 0, two more nodes at which
 * the client may come back, and faults: kills, pauses, partitions, cuts, doubts.
 *
 * It is about where a resume goes and what it is answered, not about messages: those
 * are in reseat.pml, and the owner of a session follows its rules. NATS is not there:
 * no step waits for it. What a node knows of others without it is in VERDICT.
 *
 * One step is one event that a node or the client handles at once. What is checked:
 * each MUST; SETTLED, which every run must reach; and the formula at the end.
 */

/* ---- bounds, each to be set with -D */

#ifndef NODES
#define NODES 3      /* node 0 has the session */
#endif
#ifndef SLOTS
#define SLOTS 3      /* connections of the client that exist at once */
#endif
#ifndef KILLS
#define KILLS 1      /* nodes that are killed */
#endif
#ifndef PAUSES
#define PAUSES 1     /* times that a node stands still for a while */
#endif
#ifndef PARTITIONS
#define PARTITIONS 1 /* times that a node and the owner cannot reach each other for a while */
#endif
#ifndef FAULTS
#define FAULTS 1     /* cuts, attempts given up though nothing was cut, resumes beside a live connection: in all */
#endif
#ifndef REUSE
#define REUSE 0      /* another node may get the address of one that was killed */
#endif

mtype = { hello, close };

#define NO_SESSION  4404
#define SUPERSEDED  4409
#define BAD_TOKEN   4401
#define UNREACHABLE 4504

/* Where a connection stands at the nodes. */
#define NOBODY   0  /* there is none */
#define ASKED    1  /* the handshake is on its way to the node that it was made to */
#define PASSED   2  /* that one has passed it on */
#define JUDGED   3  /* that one got no answer, and judges the owner */
#define ATTACHED 4  /* the owner has answered hello */
#define GONE     5  /* closed */

/* Where the client's end stands. */
#define TRYING   1
#define LIVE     2

#define NONE SLOTS

/* ---- rules */

/* A session is lost only where its node is known to have ended: not where that merely
   does not answer. And it is lost then, or its client would come back for ever. */
#if defined(NOBODY_IS_GONE)
#define VERDICT UNREACHABLE
#elif defined(SILENT_IS_GONE)
#define VERDICT (alive[0] && !paused[0] && !parted[conn[s].at] -> UNREACHABLE : NO_SESSION)
#else
#define VERDICT (alive[0] -> UNREACHABLE : NO_SESSION)
#endif

/* A node that does not have a session passes the resume on. */
#ifdef FRONT_ANSWERS_404
#define PASSES_ON 0
#else
#define PASSES_ON 1
#endif

/* A connection was passed on at most once, and only to the node whose id is asked for. */
#ifdef HOP_WITHOUT_LIMIT
#define HOPS_LIMITED 0
#else
#define HOPS_LIMITED 1
#endif

/* 4504 changes nothing. */
#ifdef REFUSAL_ENDS_SESSION
#define END_BY_REFUSAL over = 1
#else
#define END_BY_REFUSAL skip
#endif

/* The newest resume takes the session over, at whichever nodes the two have arrived. */
#ifdef OLD_FRONT_KEEPS
#define TAKES_OVER(s) (conn[att].at == conn[s].at)
#else
#define TAKES_OVER(s) 1
#endif

/* A resume confirms the generation that it came with, and no other is superseded by it:
   the hello may be lost with the node that passes it on. */
#ifdef SUPERSEDE_AT_ISSUE
#define GOOD(g) (g == issued)
#else
#define GOOD(g) (g >= confirmed && g <= issued)
#endif

/* 4504 means: come back. */
#ifdef TAKES_4504_FOR_AN_ANSWER
#define FINAL(c) 1
#else
#define FINAL(c) (c != UNREACHABLE)
#endif

/* ---- state */

typedef Connection {
	byte client, stage;  /* its two ends */
	byte at;             /* the node that it was made to */
	byte to;             /* PASSED: the node that it was passed on to */
	byte hops;           /* how often */
	bit  far;            /* it was passed on */
	bit  cut;            /* nothing goes in any more */
	byte token, gen;     /* of its handshake; of its hello */
};

Connection conn[SLOTS];
chan down[SLOTS] = [2] of { mtype, short };

bit  alive[NODES], paused[NODES];
bit  parted[NODES];      /* from the owner */
byte kills, pauses, partitions, faults;
byte heir = NODES;       /* who has the address of the owner that was killed */

/* The session. */
byte att = NONE;
byte issued = 1, confirmed;
bit  over;
bit  late;               /* a resume that its front has given up waits at the owner */
byte lateToken;
#ifdef REACH
bit  tookLate;           /* it has taken the session over from the client's connection */
#endif

/* The client. */
byte live = NONE, attempt = NONE, token = 1;
short finished;

/* Only printed. */
#ifdef SHORTEST
#define hidden
#endif
hidden mtype k;
hidden short n, code;
hidden byte dialled, name[SLOTS];

#define MAX(a, b) (a > b -> a : b)
#define MUST(what, why) if :: (what) -> skip :: else -> printf(why); assert(false) fi

/* ---- connections */

inline drain(c) { do :: nempty(c) -> c?_,_ :: empty(c) -> break od; skip }

inline recycle(s) {
	if
	:: conn[s].client == GONE && conn[s].stage == GONE ->
		drain(down[s]);
		conn[s].client = NOBODY; conn[s].stage = NOBODY; conn[s].at = 0; conn[s].to = 0; conn[s].hops = 0;
		conn[s].far = 0; conn[s].cut = 0; conn[s].token = 0; conn[s].gen = 0
	:: else -> skip
	fi
}
inline closeClient(s) { conn[s].client = GONE; drain(down[s]); recycle(s) }
inline closeNode(s) { conn[s].stage = GONE; recycle(s) }

inline say(s, kind, number) {
	if :: conn[s].cut || conn[s].client == GONE -> skip :: else -> down[s]!kind,number fi
}

/* What a node can do: it lives, and does not stand still. */
#define RUNS(i) (alive[i] && !paused[i])
/* What is said goes through all nodes between the session and the client. */
#define OPENS(s) (RUNS(conn[s].at) && (!conn[s].far || !parted[conn[s].at]))
#define REACHED(s) (RUNS(0) && !parted[conn[s].at])

/* ---- the nodes */

inline refuse(s) {
	printf("node %d: #%d is refused with %d\n", conn[s].at, name[s], code);
	if :: code == UNREACHABLE -> END_BY_REFUSAL :: else -> skip fi;
	say(s, close, code); closeNode(s)
}

/* The session's own node answers. */
inline answer(s) {
	code = (over -> NO_SESSION : (GOOD(conn[s].token) -> 0 : BAD_TOKEN));
	if
	:: code -> refuse(s)
	:: else ->
		if
		:: att != NONE && TAKES_OVER(s) ->
			printf("node 0: #%d gets close 4409\n", name[att]);
			say(att, close, SUPERSEDED); closeNode(att)
		:: else -> skip
		fi;
		confirmed = MAX(conn[s].token, confirmed); issued++;
		printf("node 0: #%d is attached: hello with generation %d\n", name[s], issued);
		conn[s].stage = ATTACHED; conn[s].gen = issued; conn[s].token = 0;
		say(s, hello, 0); att = s
	fi
}

/* A handshake has arrived at the node that it was made to. */
inline arrive(s) {
	if
	:: conn[s].at == 0 -> answer(s)
	:: conn[s].at != 0 && !PASSES_ON -> code = NO_SESSION; refuse(s)
	:: conn[s].at != 0 && PASSES_ON && REACHED(s) ->
		printf("node %d: passes #%d on\n", conn[s].at, name[s]);
		conn[s].stage = PASSED; conn[s].to = 0; conn[s].hops = 1; conn[s].far = 1
	:: conn[s].at != 0 && PASSES_ON && !alive[0] && heir < NODES && !HOPS_LIMITED ->
		printf("node %d: passes #%d on, to node %d\n", conn[s].at, name[s], heir);
		conn[s].stage = PASSED; conn[s].to = heir; conn[s].hops = 1; conn[s].far = 1
	:: else -> conn[s].stage = JUDGED
	fi
}

/* What was passed on has arrived. A node that has not got the session does not pass it
   on again. */
inline arrivePassed(s) {
	if
	:: conn[s].to == 0 -> answer(s)
	:: conn[s].to != 0 && HOPS_LIMITED -> code = NO_SESSION; refuse(s)
	:: conn[s].to != 0 && !HOPS_LIMITED ->
		conn[s].hops++;
		printf("node %d: passes #%d on again\n", conn[s].to, name[s]);
		MUST(conn[s].hops <= 2, "BROKEN: a third hop\n")
	fi
}

/* A front gives the owner up. What it has sent may still be read there. */
inline abandon(s) {
	printf("node %d: gets no answer for #%d\n", conn[s].at, name[s]);
	if :: alive[0] && !late -> late = 1; lateToken = conn[s].token :: else -> skip fi;
	conn[s].stage = JUDGED; conn[s].far = 0
}

inline judge(s) { code = VERDICT; refuse(s) }

/* A resume of which nobody waits for the answer: it takes the session over all the same. */
inline answerLate() {
	late = 0;
	if
	:: !over && GOOD(lateToken) ->
#ifdef REACH
		tookLate = (att != NONE && att == live);
#endif
		printf("node 0: attaches a resume that was given up\n");
		if :: att != NONE -> printf("node 0: #%d gets close 4409\n", name[att]); say(att, close, SUPERSEDED); closeNode(att); att = NONE :: else -> skip fi;
		confirmed = MAX(lateToken, confirmed); issued++
	:: else -> skip
	fi;
	lateToken = 0
}

/* The owner, or the node that has passed it on, notices that a connection has ended. */
inline dropped(s) {
	printf("node %d: #%d is gone\n", conn[s].at, name[s]);
	if :: s == att -> att = NONE :: else -> skip fi;
	conn[s].cut = 1; closeNode(s)
}

/* ---- the client */

inline dial(s, i) {
	if :: live != NONE -> printf("client: doubts #%d\n", name[live]); faults++ :: else -> skip fi;
	dialled++; name[s] = dialled;
	printf("client: resume #%d at node %d with generation %d\n", name[s], i, token);
	conn[s].client = TRYING; conn[s].stage = ASKED; conn[s].at = i; conn[s].token = token; attempt = s
}

inline finish(why) {
	printf("client: the application gets %d\n", why);
	finished = why;
	MUST(why != NO_SESSION || !alive[0], "BROKEN: 4404 is a verdict though the session's node lives\n");
	MUST(why != UNREACHABLE, "BROKEN: 4504 is a verdict\n");
	MUST(why != BAD_TOKEN, "BROKEN: 4401 is a verdict\n");
	if :: live != NONE -> closeClient(live) :: else -> skip fi;
	live = NONE; attempt = NONE
}

inline onMessage(s) {
	down[s]?k,n;
	if
	:: k == hello ->
		printf("client: hello on #%d\n", name[s]);
		if :: live != NONE -> closeClient(live) :: else -> skip fi;
		live = s; attempt = NONE; conn[s].client = LIVE; token = conn[s].gen
	:: k == close && s == live -> printf("client: close %d on #%d\n", n, name[s]); live = NONE; closeClient(s)
	:: k == close && s == attempt ->
		attempt = NONE; closeClient(s);
		if :: FINAL(n) -> finish(n) :: else -> skip fi
	:: else -> closeClient(s)
	fi
}

/* ---- processes */

/* A connection is dead where it was cut, or seems so: its node stands still, or the one
   between that and the owner has lost it. */
#define SEEMS_DEAD(s) (!OPENS(s) || (conn[s].far && !RUNS(0)))
#define DEAD(s) ((conn[s].cut && empty(down[s])) || SEEMS_DEAD(s))
#define BESIDE (live == NONE || faults < FAULTS)

proctype ClientEnd(byte s) {
endClient:
	do
	:: d_step { nempty(down[s]) && (conn[s].cut || OPENS(s)) -> onMessage(s) }
	:: d_step { s == attempt && conn[s].client == TRYING && DEAD(s) -> printf("client: gives #%d up\n", name[s]); attempt = NONE; closeClient(s) }
	:: d_step { s == attempt && conn[s].client == TRYING && faults < FAULTS -> printf("client: gives #%d up\n", name[s]); faults++; attempt = NONE; closeClient(s) }
	:: d_step { s == live && DEAD(s) -> printf("client: #%d is lost\n", name[s]); live = NONE; closeClient(s) }
	od
}

proctype NodeEnd(byte s) {
endNode:
	do
	:: d_step { conn[s].stage == ASKED && RUNS(conn[s].at) && !conn[s].cut -> arrive(s) }
	:: d_step { conn[s].stage == PASSED && RUNS(conn[s].to) -> arrivePassed(s) }
	:: d_step { conn[s].stage == PASSED && RUNS(conn[s].at) && (!alive[conn[s].to] || paused[0] || parted[conn[s].at]) -> abandon(s) }
	:: d_step { conn[s].stage == JUDGED && RUNS(conn[s].at) -> judge(s) }
	/* the session's node notices; or has lost it with the session */
	:: d_step { conn[s].stage == ATTACHED && RUNS(0) && (conn[s].cut || conn[s].client == GONE || SEEMS_DEAD(s)) -> dropped(s) }
	:: d_step { conn[s].stage == ATTACHED && !alive[0] -> dropped(s) }
	:: d_step { (conn[s].stage == ASKED || conn[s].stage == PASSED || conn[s].stage == JUDGED) && (!alive[conn[s].at] || (conn[s].client == GONE && conn[s].cut)) -> conn[s].cut = 1; closeNode(s) }
	od
}

proctype Network(byte s) {
endNetwork:
	do
	:: d_step { conn[s].client != NOBODY && conn[s].client != GONE && !conn[s].cut && faults < FAULTS -> printf("network: cuts #%d\n", name[s]); faults++; conn[s].cut = 1 }
	:: d_step { nempty(down[s]) && conn[s].cut -> drain(down[s]) }
	/* a handshake is lost, or arrives though nobody waits any more */
	:: d_step { conn[s].stage == ASKED && conn[s].client == GONE -> printf("network: loses the handshake of #%d\n", name[s]); closeNode(s) }
	:: d_step { conn[s].stage == ASKED && conn[s].cut -> closeNode(s) }
	od
}

#define FREE(s) (conn[s].client == NOBODY && conn[s].stage == NOBODY)
#define MAY_DIAL (!finished && attempt == NONE && BESIDE)

/* The load balancer leads the client to any node that lives. */
inline dialAny(s) {
	if
	:: alive[0] -> dial(s, 0)
	:: alive[1] -> dial(s, 1)
#if NODES > 2
	:: alive[2] -> dial(s, 2)
#endif
	fi
}

proctype Client() {
endResume:
	do
	:: MAY_DIAL && FREE(0) -> atomic { if :: MAY_DIAL && FREE(0) -> dialAny(0) :: else -> skip fi }
	:: MAY_DIAL && !FREE(0) && FREE(1) -> atomic { if :: MAY_DIAL && FREE(1) -> dialAny(1) :: else -> skip fi }
#if SLOTS > 2
	:: MAY_DIAL && !FREE(0) && !FREE(1) && FREE(2) -> atomic { if :: MAY_DIAL && FREE(2) -> dialAny(2) :: else -> skip fi }
#endif
	od
}

proctype Session() {
endSession:
	do
	:: d_step { late && RUNS(0) -> answerLate() }
	:: d_step { late && !alive[0] -> late = 0; lateToken = 0 }
	od
}

/* What happens to a node. A pause and a partition end, at some time. */
proctype Faults(byte i) {
	byte s;
endFaults:
	do
	:: d_step { alive[i] && kills < KILLS -> printf("network: node %d is killed\n", i);
		kills++; alive[i] = 0; paused[i] = 0; parted[i] = 0;
		if :: i == 0 -> over = 1 :: else -> skip fi;
		s = 0;
		do
		:: s < SLOTS -> if :: conn[s].client != NOBODY && (conn[s].at == i || (i == 0 && conn[s].stage == ATTACHED)) -> conn[s].cut = 1 :: else -> skip fi; s++
		:: else -> break
		od; s = 0 }
	:: d_step { alive[i] && !paused[i] && pauses < PAUSES -> printf("network: node %d stands still\n", i); pauses++; paused[i] = 1 }
	:: d_step { paused[i] -> printf("network: node %d goes on\n", i); paused[i] = 0 }
	:: d_step { i > 0 && !parted[i] && alive[i] && partitions < PARTITIONS -> printf("network: node %d and node 0 lose each other\n", i); partitions++; parted[i] = 1 }
	:: d_step { parted[i] -> printf("network: node %d and node 0 reach each other\n", i); parted[i] = 0 }
	:: d_step { REUSE && i > 0 && alive[i] && !alive[0] && heir == NODES -> printf("network: node %d gets the address of node 0\n", i); heir = i }
	od
}

/* ---- what every run must reach */

#define SETTLED ((live < SLOTS && att == live && !conn[live].cut) || (finished && !alive[0]))

/* At rest one connection is open, and both ends agree which. */
#define OVER(s) (s == live || conn[s].stage == NOBODY || conn[s].stage == GONE)
#if SLOTS == 3
#define ALONE (attempt == NONE && OVER(0) && OVER(1) && OVER(2))
#else
#define ALONE (attempt == NONE && OVER(0) && OVER(1))
#endif

proctype Rest() {
endRest:
	timeout ->
	MUST(SETTLED, "BROKEN: nothing goes on, and the client has neither its session nor an answer\n");
	MUST(ALONE, "BROKEN: nothing goes on, and more than one connection is attached\n")
}

/* Shows that something can be reached at all: this check is to fail. */
#define LATE_TAKEOVER tookLate
#define THROUGH_TWO_FRONTS (live < SLOTS && att == live && token == 3 && conn[live].at == 2 && !alive[1])
#ifdef REACH
proctype Witness() {
endWitness:
	(REACH) -> printf("REACHED\n"); assert(false)
}
#endif

init {
	byte i;
	atomic {
		run Client(); run Session(); run Rest();
#ifdef REACH
		run Witness();
#endif
		do :: i < NODES -> alive[i] = 1; run Faults(i); i++ :: else -> break od;
		i = 0;
		do :: i < SLOTS -> run ClientEnd(i); run NodeEnd(i); run Network(i); i++ :: else -> break od
	}
}

#ifdef ALWAYS_SETTLES
ltl settles { <> SETTLED }
#endif
