/*
 * reseat.v1 as a model: one client, one session of the gateway, one game
 * server, and a network with a budget of faults.
 *
 * One step of a process is one event that the real part handles at once: the
 * gateway under its session's lock, the client in one turn of its event loop.
 * Steps of different processes mix in every order.
 *
 * What is checked: each MUST; SETTLED, which every run must reach; and the formula
 * at the end. docs/model.md says what the model covers.
 */

#include "rules.pml"

/* ---- state */

typedef Connection {
	byte client, gateway;   /* its two ends */
	bit  cut;               /* accepts nothing more; what is in flight may still arrive */
	bit  mute;              /* delivers nothing, in either direction */
	byte token, stated;     /* what its handshake says: the generation, and N */
	byte gen;               /* the generation that its hello carries */
	byte last, said;        /* client: newest message that came on it, newest ack given on it */
	bit  final;             /* client: bye has been said on it; gateway: end has been */
};

Connection conn[SLOTS];
chan up[SLOTS]   = [4] of { mtype, short };
chan down[SLOTS] = [6] of { mtype, short };
byte faults;

/* The gateway's session. */
byte att = NONE;                    /* the attached connection */
byte waiter = NONE;                 /* hard: the one that waits for the game server */
byte issued = 1, confirmed;         /* generations; the first was made ahead of the client */
byte receivedUp, written, ackedUp;       /* upward; ackedUp is the newest ack sent */
bit  owing;                         /* an ack is due on the attached connection */
chan queue = [2*UP+1] of { byte };  /* received and not written */
byte numbered, base, acked;         /* downward; the replay buffer holds (base, numbered] */
byte replaced;                      /* bit n: message n, by a newer one */
byte cursor, sent;                  /* written to the attached connection, to any */
short over;                         /* why the session has ended */

/* The game server. */
byte seen;                          /* messages received */
bit  upstreamClosed;                /* it has closed */
bit  noUpstream;                        /* hard: it has no connection */

/* The client. */
byte live = NONE, attempt = NONE;
byte token = 1, received;           /* the newest generation held; messages that the application saw */
byte outReceived, outAcked;         /* the outbox: what the gateway said it holds, and what it acked */
byte outCursor, outHanded;          /* given to the live connection, to any */
bit  gaveUp, gaveUpBefore;          /* an attempt, since the newest hello or since the one before it */
short finished;                     /* the close code that the application got */

/* Used only by the checks. */
byte newest = NONE;                 /* the connection whose hello was made last */
byte proven;                        /* the newest generation that a client has proved to hold */
bit  byRival[SLOTS];                /* superseded by the rival */
bit  rivalAttached, rivalConfirmed;             /* the rival has been attached; has confirmed a generation of its own */

/* Meaningless between two steps, or only printed: no part of a state. A search
   breadth first cannot do without. */
#ifdef SHORTEST
#define hidden
#endif
hidden mtype k;
hidden short n, code;
hidden byte dialled, name[SLOTS], from;

#define MAX(a, b) (a > b -> a : b)
#define MUST(what, why) if :: (what) -> skip :: else -> printf(why); assert(false) fi

/* What only the gateway or the client could see. -DOUTSIDE leaves it out, to
   show what a broken rule does to the application and the game server. */
#ifdef OUTSIDE
#define INSIDE(what, why) skip
#else
#define INSIDE(what, why) MUST(what, why)
#endif

/* At the end of each step of the gateway. */
inline invariants() {
	INSIDE(ackedUp <= written && written <= receivedUp, "BROKEN I5, upward: acked <= written <= receivedUp\n");
	INSIDE(acked <= sent && sent <= numbered, "BROKEN I5, downward: acked <= sent <= numbered\n");
	INSIDE(base <= acked, "BROKEN I5: a message is trimmed that was not acked\n")
}

/* ---- connections */

inline drain(c) { do :: nempty(c) -> c?_,_ :: empty(c) -> break od; skip }
inline dropQueue() { do :: nempty(queue) -> queue?_ :: empty(queue) -> break od; skip }

/* Once both ends are closed the slot is free for another connection. */
inline recycle(s) {
	if
	:: conn[s].client == GONE && conn[s].gateway == GONE ->
		drain(up[s]); drain(down[s]);
		conn[s].client = NOBODY; conn[s].gateway = NOBODY; conn[s].cut = 0; conn[s].mute = 0;
		conn[s].token = 0; conn[s].stated = 0; conn[s].gen = 0;
		conn[s].last = 0; conn[s].said = 0; conn[s].final = 0; byRival[s] = 0
	:: else -> skip
	fi
}

/* The client closes. What it said before may still arrive. */
inline closeClient(s) { conn[s].client = GONE; conn[s].last = 0; conn[s].said = 0; drain(down[s]); recycle(s) }

/* The gateway closes. */
inline closeGateway(s) { conn[s].gateway = GONE; drain(up[s]); recycle(s) }

/* Writing to a connection that is cut or closed succeeds, and has no effect. */
inline sayUp(s, kind, number) {
	if :: conn[s].cut || conn[s].gateway == GONE -> skip :: else -> up[s]!kind,number fi
}
inline sayDown(s, kind, number) {
	if :: conn[s].cut || conn[s].client == GONE -> skip :: else -> down[s]!kind,number fi
}

/* Room for a message and a closing message behind it. */
#define ROOM_UP(s)   (len(up[s]) < 3)
#define ROOM_DOWN(s) (len(down[s]) < 5)

/* ---- the gateway's session */

inline confirm(it) { confirmed = MAX(it, confirmed) }
inline prove(it)   { proven = MAX(it, proven) }
inline forget()    { base = MAX(FORGETTABLE, base) }
inline endSession(why) { over = why; att = NONE; owing = 0 }

/* A resume is good: s is attached. */
inline attach(s, it, count) {
	INSIDE(it >= proven, "BROKEN I4: a superseded generation is attached\n");
	if
	:: att < SLOTS ->
		printf("gateway: #%d gets close 4409\n", name[att]);
		sayDown(att, close, SUPERSEDED); FENCE(att); LOSE_QUEUE
	:: else -> skip
	fi;
	confirm(CONFIRMED_BY_RESUME(it)); prove(it);
	acked = MAX(count, acked); forget();
	issued++; cursor = base; owing = OWES_ACK;
	att = s; newest = s
}

/* Section 2, the order of the checks: token, session, received. */
inline check(it, count) {
	if
	:: !GOOD(it) -> code = BAD_TOKEN
	:: GOOD(it) && over -> code = (over == ENDED -> ENDED : NO_SESSION)
	:: GOOD(it) && !over -> code = (count < acked -> TOO_OLD : (count > EVER_SENT -> TOO_FAR : 0))
	fi
}

inline refuse(s) {
	printf("gateway: #%d is refused with %d\n", name[s], code);
#ifdef SUPERSEDED_MEANS_THEFT
	MUST(code != BAD_TOKEN || rivalAttached, "BROKEN: a superseded token is shown though no rival holds the session\n");
#endif
	MUST((code != TOO_OLD && code != TOO_FAR) || rivalAttached || conn[s].client == GONE, "BROKEN: a client that keeps the rules is refused for its count\n");
	sayDown(s, close, code); closeGateway(s)
}

/* Hard: a resume waits for the game server; a later one takes its place. */
inline await(s) {
	if
	:: waiter != NONE ->
		printf("gateway: #%d gets close 4409\n", name[waiter]);
		sayDown(waiter, close, SUPERSEDED); closeGateway(waiter)
	:: else -> skip
	fi;
	printf("gateway: #%d waits for the game server\n", name[s]);
	waiter = s; conn[s].gateway = WAITING
}

inline handshake(s) {
	check(conn[s].token, conn[s].stated);
	if
	:: code -> refuse(s)
	:: !code && noUpstream -> await(s)
	:: !code && !noUpstream ->
		attach(s, conn[s].token, conn[s].stated);
		printf("gateway: #%d is attached: hello with generation %d, received %d\n", name[s], issued, HELLO_RECEIVED);
		conn[s].gateway = ATTACHED; conn[s].gen = issued; conn[s].token = 0;
		sayDown(s, hello, HELLO_RECEIVED);
		invariants()
	fi
}

inline admit(s) {
	INSIDE(receivedUp - ackedUp < WINDOW, "BROKEN: more than the window is unacked\n");
	printf("gateway: admits message %d from #%d\n", n, name[s]);
	receivedUp++; queue!n;
	owing = (owing || ackedUp < ACKABLE)
}

/* One message of the client. */
inline fromClient(s) {
	up[s]?k,n;
	if
	:: over -> skip
	:: else ->
		INSIDE(s == newest, "BROKEN I3: an older connection counts after the newer one's hello\n");
		confirm(conn[s].gen); prove(conn[s].gen); conn[s].gen = 0;
		if
		:: k == data && !upstreamClosed -> admit(s)
		:: k == data && upstreamClosed -> skip
		:: k == ack ->
			INSIDE(n <= cursor, "BROKEN: an ack of what this connection was not sent\n");
			printf("gateway: #%d acks %d\n", name[s], n);
			acked = MAX(n, acked); forget()
		:: k == bye ->
			printf("gateway: bye on #%d\n", name[s]);
			sayDown(s, closed, BYE_CODE); endSession(BYE_CODE); closeGateway(s)
		:: k == closed -> endSession(ENDED); closeGateway(s)
		fi;
		invariants()
	fi
}

/* The gateway notices that a connection has ended: at once, or late. One that is
   silent it may take for dead, which it may not be. */
inline dropped(s) {
	printf("gateway: #%d is gone\n", name[s]);
	if
	:: s == att -> att = NONE; owing = 0; noUpstream = (HARD && !upstreamClosed); LOSE_QUEUE
	:: s == waiter -> waiter = NONE
	:: else -> skip
	fi;
	conn[s].cut = (conn[s].cut || conn[s].mute);
	closeGateway(s)
}

/* ---- the client */

inline dial(s) {
	dialled++; name[s] = dialled;
	printf("client: resume #%d with generation %d, received %d\n", name[s], token, received);
	conn[s].client = TRYING; conn[s].token = token; conn[s].stated = received; attempt = s
}

/* An attempt ends with unknown outcome: it may have reached the gateway, or may reach it yet.
   Beside a live connection, which has spoken, that is no fault. (Only before its 101,
   says section 5. Here it may be at any time: later it costs time, and loses nothing.) */
inline giveUp(s) {
	printf("client: gives #%d up\n", name[s]);
	gaveUp = 1; gaveUpBefore = 1; attempt = NONE; closeClient(s)
}

inline finish(why) {
	printf("client: the application gets %d\n", why);
	finished = why;
	if :: live != NONE -> closeClient(live) :: else -> skip fi;
	if :: attempt != NONE -> closeClient(attempt) :: else -> skip fi;
	live = NONE; attempt = NONE
}

inline onHello(s) {
	printf("client: hello on #%d, received %d\n", name[s], n);
	INSIDE(n >= outReceived && n <= outHanded, "BROKEN: hello names what it never had, or had already\n");
	if :: live != NONE -> closeClient(live) :: else -> skip fi;  /* section 8: its input is ignored */
	live = s; attempt = NONE; gaveUpBefore = gaveUp; gaveUp = 0;
	conn[s].client = LIVE; conn[s].last = conn[s].stated; conn[s].said = conn[s].stated; conn[s].stated = 0;
	token = conn[s].gen;
	outReceived = n; outCursor = n;
	sayUp(s, ack, conn[s].said)
}

/* `close` instead of hello. */
inline onRefusal(s) {
	code = (n == UNREACHED || (n == SUPERSEDED && MINE(s)) || !FINAL(s) -> 0 : n);
	attempt = NONE; closeClient(s);
	if
	:: !code -> skip
	:: else ->
		MUST(code != BAD_TOKEN || rivalConfirmed, "BROKEN: 4401 is a verdict though no rival holds the session\n");
		MUST(code != SUPERSEDED || rivalAttached, "BROKEN: 4409 is a verdict though no rival holds the session\n");
		MUST(code != NO_SESSION || over, "BROKEN: 4404 is a verdict though the session lives\n");
		finish(code)
	fi
}

/* `close` on the live connection: always 4409 here. */
inline onClose(s) {
	printf("client: close 4409 on #%d\n", name[s]);
	if
	:: MINE(s) -> live = NONE; closeClient(s)
	:: else ->
		MUST(byRival[s], "BROKEN: 4409 is a verdict though no rival holds the session\n");
		finish(SUPERSEDED)
	fi
}

inline onData(s) {
	if :: LISTENS || s != live -> conn[s].last++ :: else -> skip fi;
	if
	:: conn[s].last > received ->
		printf("client: the application sees message %d\n", n);
		received++;
		MUST(n == received, "BROKEN I1: the application sees a gap or a repeat\n")
	:: else -> skip
	fi
}

inline onSkipped(s) {
	if :: LISTENS || s != live -> conn[s].last = conn[s].last + n :: else -> skip fi;
	do
	:: conn[s].last > received ->
		received++;
		printf("client: message %d was replaced\n", received);
		MUST(STATE(received), "BROKEN: a message is skipped that is no state\n");
		MUST(received + 1 <= numbered && STATE(received + 1) || received + 2 <= numbered && STATE(received + 2), "BROKEN: the newest state is skipped\n")
	:: else -> break
	od
}

inline onMessage(s) {
	down[s]?k,n;
	if
	:: k == hello -> onHello(s)
	:: k == close && conn[s].client == TRYING -> onRefusal(s)
	:: k == close && conn[s].client == LIVE -> onClose(s)
	:: k == data -> onData(s)
	:: k == skipped -> onSkipped(s)
	:: k == ack ->
		INSIDE(n <= outCursor, "BROKEN: an ack of what this connection was not given\n");
		outAcked = MAX(n, outAcked); outReceived = MAX(n, outReceived)
	:: k == end ->
		MUST(received == DOWN, "BROKEN I12: end overtakes a message\n");
		sayUp(s, closed, 0); finish(ENDED)
	:: k == closed -> finish(BYE_CODE)
	fi
}

/* ---- processes: the two ends of each connection, and the way between them */

#define DEAD(s) (SEEMS_DEAD(s) || (conn[s].cut && !conn[s].mute && empty(down[s])))
#define OPEN(s) (conn[s].client == TRYING || conn[s].client == LIVE)
#define SUSPECTING (SUSPICION && live != NONE)

proctype ClientEnd(byte s) {
endClient:
	do
	:: d_step { nempty(down[s]) && !conn[s].mute -> onMessage(s) }
	:: d_step { conn[s].client == TRYING && DEAD(s) -> giveUp(s) }
	:: d_step { conn[s].client == TRYING && !conn[s].cut && !conn[s].mute && (SUSPECTING || faults < FAULTS) ->
		if :: SUSPECTING -> skip :: else -> faults++ fi;
		giveUp(s) }
	:: d_step { s == live && DEAD(s) -> printf("client: #%d is lost\n", name[s]); live = NONE; closeClient(s) }
	:: d_step { s == live && ROOM_UP(s) && outCursor < UP && outCursor - outAcked < WINDOW ->
		outCursor++; outHanded = MAX(outCursor, outHanded);
		printf("client: sends message %d on #%d\n", outCursor, name[s]);
		sayUp(s, data, outCursor) }
	:: d_step { s == live && ROOM_UP(s) && !conn[s].final && MAY_ACK(s) > conn[s].said ->
		conn[s].said = MAY_ACK(s);
		printf("client: acks %d on #%d\n", conn[s].said, name[s]);
		sayUp(s, ack, conn[s].said) }
	:: d_step { BYE && s == live && ROOM_UP(s) && !conn[s].final && outCursor == UP ->
		conn[s].final = 1;
		printf("client: bye on #%d\n", name[s]);
		sayUp(s, bye, 0) }
	od
}

proctype GatewayEnd(byte s) {
endGateway:
	do
	:: d_step { conn[s].client != NOBODY && conn[s].gateway == NOBODY && !conn[s].mute -> handshake(s) }
	:: d_step { conn[s].gateway != NOBODY && nempty(up[s]) && !conn[s].mute -> fromClient(s) }
	:: d_step { conn[s].gateway != NOBODY && conn[s].gateway != GONE && (SEEMS_DEAD(s) || (!conn[s].mute && empty(up[s]) && (conn[s].cut || conn[s].client == GONE))) -> dropped(s) }
	:: d_step { s == att && ROOM_DOWN(s) && cursor < numbered && REPLACED(cursor + 1) ->
		from = cursor;
		do :: TOLD_AGAIN(from) -> from-- :: else -> break od;
		do :: cursor < numbered && REPLACED(cursor + 1) -> cursor++ :: else -> break od;
		sent = MAX(cursor, sent); forget();
		printf("gateway: skips messages %d to %d on #%d\n", from + 1, cursor, name[s]);
		sayDown(s, skipped, cursor - from); invariants() }
	:: d_step { s == att && ROOM_DOWN(s) && cursor < numbered && !REPLACED(cursor + 1) ->
		cursor++; sent = MAX(cursor, sent); forget();
		printf("gateway: writes message %d to #%d\n", cursor, name[s]);
		sayDown(s, data, cursor); invariants() }
	:: d_step { s == att && ROOM_DOWN(s) && owing && !(CLOSE && conn[s].final) ->
		owing = 0; ackedUp = ACKABLE;
		printf("gateway: acks %d on #%d\n", ackedUp, name[s]);
		sayDown(s, ack, ackedUp); invariants() }
	:: d_step { CLOSE && s == att && ROOM_DOWN(s) && upstreamClosed && cursor == numbered && !conn[s].final ->
		conn[s].final = 1;
		sayDown(s, end, 0) }
	od
}

/* A cut lets nothing more in. What is under way arrives, or some of it, or nothing. */
proctype Network(byte s) {
endNetwork:
	do
	:: d_step { OPEN(s) && !conn[s].cut && faults < FAULTS ->
		printf("network: cuts #%d\n", name[s]);
		faults++; conn[s].cut = 1 }
	:: d_step { SILENCE && OPEN(s) && !conn[s].cut && !conn[s].mute && faults < FAULTS ->
		printf("network: #%d falls silent\n", name[s]);
		faults++; conn[s].mute = 1 }
	:: d_step { conn[s].mute && SILENCE < 2 -> printf("network: #%d is good again\n", name[s]); conn[s].mute = 0 }
	:: d_step { conn[s].client != NOBODY && conn[s].gateway == NOBODY && (conn[s].cut || conn[s].client == GONE) ->
		printf("network: loses the handshake of #%d\n", name[s]);
		closeGateway(s) }
	:: d_step { nempty(up[s]) && (conn[s].cut || conn[s].client == GONE) -> drain(up[s]) }
	:: d_step { nempty(down[s]) && conn[s].cut -> drain(down[s]) }
	od
}

/* ---- processes: what belongs to no connection */

#define FREE(s) (conn[s].client == NOBODY)
#define MAY_DIAL (!finished && attempt == NONE && (live == NONE || (faults < FAULTS && !conn[live].final)))

/* A resume beside a live connection: the client was asked to move, or suspects that
   the connection is dead, perhaps without reason. */
inline resume(s) {
	if :: live != NONE -> printf("client: doubts #%d\n", name[live]); faults++ :: else -> skip fi;
	dial(s)
}

proctype Client() {
endResume:
	do
	:: d_step { MAY_DIAL && FREE(0) -> resume(0) }
	:: d_step { MAY_DIAL && !FREE(0) && FREE(1) -> resume(1) }
#if SLOTS > 2
	:: d_step { MAY_DIAL && !FREE(0) && !FREE(1) && FREE(2) -> resume(2) }
#endif
#if SLOTS > 3
	:: d_step { MAY_DIAL && !FREE(0) && !FREE(1) && !FREE(2) && FREE(3) -> resume(3) }
#endif
	od
}

proctype Session() {
endQuiet:
	do
	:: d_step { numbered < DOWN && numbered - base < RING && !over && !noUpstream -> numbered++ }
	:: d_step { STATES && att == NONE && !over && MAY_REPLACE(1) -> replaced = replaced | 2 }
	:: d_step { STATES && att == NONE && !over && MAY_REPLACE(2) -> replaced = replaced | 4 }
	:: d_step { STATES && att == NONE && !over && MAY_REPLACE(3) -> replaced = replaced | 8 }
	:: d_step { STATES && att == NONE && !over && MAY_REPLACE(4) -> replaced = replaced | 16 }
	:: d_step { nempty(queue) && !upstreamClosed && !noUpstream ->
		queue?n; written++; seen++;
		printf("game server: message %d\n", n);
		MUST(n == seen, "BROKEN I2: the game server sees a gap or a repeat\n");
		owing = (att < SLOTS); invariants() }
	:: d_step { CLOSE && numbered == DOWN && !over && !upstreamClosed && !noUpstream ->
		printf("game server: closes\n");
		upstreamClosed = 1; dropQueue() }
	:: d_step { waiter != NONE -> printf("gateway: has dialled the game server\n"); noUpstream = 0; handshake(waiter); waiter = NONE }
	:: d_step { waiter != NONE && faults < FAULTS ->
		printf("gateway: cannot reach the game server\n");
		faults++; sayDown(waiter, close, UNREACHED); closeGateway(waiter); waiter = NONE }
	:: d_step { GRACE && att == NONE && waiter == NONE && !over ->
		printf("gateway: the grace period is over\n");
		endSession(NO_SESSION) }
	od
}

/* A rival that has a copy of the client's token and count, and resumes once. */
proctype Rival() {
	byte copied, counted, own;
endRival:
	d_step { RIVAL && !finished ->
		printf("rival: copies the token of generation %d\n", token);
		copied = token; counted = received };
	d_step {
		check(copied, counted);
		if
		:: code || noUpstream -> skip
		:: else ->
			printf("rival: resumes with generation %d\n", copied);
			if :: att < SLOTS -> byRival[att] = 1 :: else -> skip fi;
			attach(OTHER, copied, counted); own = issued; rivalAttached = 1
		fi
	};
	if
	:: d_step { own && att == OTHER -> printf("rival: sends a message\n"); confirm(own); prove(own); rivalConfirmed = 1 }
	:: skip
	fi;
	if
	:: d_step { own && att == OTHER -> printf("rival: is gone\n"); att = NONE }
	:: skip
	fi
}

#define DELIVERED (live < SLOTS && att == live && !conn[live].cut && received == DOWN && acked == DOWN && seen == UP && outAcked == UP)

/* What every run must reach: a client that goes on trying has everything, unless
   the session has ended for a reason that was let happen. */
#define SETTLED ( \
	(!BYE && !CLOSE && DELIVERED) || \
	(BYE && finished && over == BYE_CODE && (seen == UP || upstreamClosed)) || \
	(CLOSE && finished == ENDED) || \
	(GRACE && finished && over == NO_SESSION) || \
	(RIVAL && finished && rivalAttached))

/* Of all connections at most one has an end that believes in it. */
#define OVER(s) (s == live || (!OPEN(s) && (conn[s].gateway == NOBODY || conn[s].gateway == GONE)))
#if SLOTS == 3
#define ALONE (attempt == NONE && OVER(0) && OVER(1) && OVER(2))
#else
#define ALONE (attempt == NONE && OVER(0) && OVER(1) && OVER(2) && OVER(3))
#endif

/* Nothing can happen any more. */
proctype Rest() {
endRest:
	timeout ->
	MUST(SETTLED, "BROKEN: nothing goes on, and the client has not got what it is owed\n");
	MUST(ALONE, "BROKEN: nothing goes on, and more than one connection is open\n")
}

/* Shows that something can be reached at all: this check is to fail. */
#define FIFTH_GENERATION (DELIVERED && issued == 5)
#define THREE_HELLOS_LOST (token == 1 && issued == 4 && att == NONE && attempt == NONE)
#define COSTLY_ALARM (att < SLOTS && live < SLOTS && conn[att].client == GONE && conn[live].gateway == GONE && name[att] > name[live])
#define LATE_TAKEOVER (att < SLOTS && live < SLOTS && conn[att].client == GONE && conn[live].gateway == GONE && name[att] < name[live])
#ifdef REACH
proctype Witness() {
endWitness:
	(REACH) -> printf("REACHED\n"); assert(false)
}
#endif

init {
	byte i;
	atomic {
		run Client(); run Session(); run Rival(); run Rest();
#ifdef REACH
		run Witness();
#endif
		do
		:: i < SLOTS -> run ClientEnd(i); run GatewayEnd(i); run Network(i); i++
		:: else -> break
		od
	}
}

#ifdef ALWAYS_SETTLES
ltl settles { <> SETTLED }
#endif
