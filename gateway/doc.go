// Package gateway serves the client address: it answers handshakes, creates sessions,
// finds them again for a resume, and proxies ordinary requests.
//
// # Sessions and connections
//
// A session belongs to one client. It owns the connection to the game server (the
// upstream), the counts of both directions, the replay buffer and the grace period. A
// connection is one WebSocket of the client; it is attached to at most one session.
// A session outlives its connections. Each attachment of a connection has an epoch, and
// input from an older epoch has no effect. With --disconnect hard a session outlives its
// upstream connections in the same way.
//
// # The path of a message
//
//	down  transport reads the upstream straight into the session's replay.Buffer; session
//	      walks over the frame headers and numbers whole messages; transport writes to the
//	      client from the attachment's cursor, control messages at message boundaries;
//	      an ack moves the buffer's base. A large message goes to a client that takes
//	      parts as copies with headers of their own (session/parts.go). Replaying and
//	      live sending are the same loop: only the cursor differs. A message for a slow or
//	      detached client waits in the replay.Buffer and nowhere else.
//	up    transport reads the client; session assembles messages, large ones across its
//	      connections (session/incoming.go), takes control messages out, admits data under
//	      the epoch (hello.received), gives each frame a fresh masking key; transport
//	      writes to the upstream; what has been written is acked.
//
// A plain client uses the same two paths, without control messages and acks.
//
// # The path of a handshake
//
//	front.Read              what the request is, once: peer, host, route, offer
//	ServeHTTP (serve.go)    Host, methods, the gateway's own pages
//	serve (accept.go)       RFC 6455, Origin, the gate, then one of
//	  begin                 a new session: login, limits, dial, 101, attach
//	  resume                by token (resume.go): 101 first, then token, session, login,
//	                        Origin, received; then attach
//	  resumeElsewhere       another node's session: owner.Find passes the client on, claims the
//	                        session, or refuses with 4504 or 4404
//	  resumeByCookie        a plain client (cookie.go); then the same attach
//	Create (create.go)      a new session by the control API, without a client
//
// attach (resume.go) dials the upstream again if the session has none: dial.Reconnect.
//
// # What may refuse a resume
//
// Before the 101, by HTTP: a request that has passed this gateway before (508), Host (421), a faulty
// handshake (400, 405, 426), Origin (403), and a node that asks for a session which is not here (421).
// After the 101, as a close, in this order (protocol section 2), so that a stolen or old token learns
// nothing about the session:
//
//	resumeByToken (resume.go)      4401  the token is invalid or expired
//	owner.Find                     4504  its node does not answer; what its seat says of its end
//	registry.Refusal               4404, or the code of the tombstone: no such session, or
//	                               it has ended
//	resumeByToken                  4401  another player, login or Origin
//	session.Check (admission.go)   4401  superseded generation
//	                               4404, 4408, 4410  the session has just ended
//	                               4400, 4408  received; 4429  too many takeovers
//	dial.Reconnect                 4502  no upstream, --disconnect hard; 4409  a later resume
//	issuer.pass                    1011  no token can be signed
//	owner.Confirm                  4504  another node has claimed the session meanwhile
//
// Before a claim session.Seated.Check, beside Check, refuses what it would refuse. attach checks
// again when it attaches, since the token is signed outside the session's lock. A drain refuses no
// resume.
//
// # From SIGTERM to exit
//
//	process.serve (server/server.go)    aborts an upgrade under way, logs shutdown.started, and calls
//	process.drain                       a second signal exits at once
//	  Gateway.Drain (drain.go)          refuses new sessions, hands durable ones off to other nodes,
//	                                    serves the others for --drain; then 4503 to all at
//	                                    once, and closeWait for the closing handshakes
//	  process.FinishPosts               posts the queued webhook events
//	process.close                       event streams, servers, listeners, Gateway.Close
//
// # Who owns what
//
//	gateway        decisions about requests: accept.go, resume.go, cookie.go, create.go; how each
//	               refuses: refusals.go. What a session's events ask for: observe.go. Tokens:
//	               issuer.go. Shutdown: drain.go. Memory pressure: memory.go. serve.go stands
//	               above these files, gateway.go (the struct) below; none need each other in a
//	               cycle, which a test holds
//	front          a request, read once, and the routes
//	gate           keeps requests out while sessions are frozen; what blocks takes its Visit
//	dial           every dial of a game server: the first, again for a client that waits, and
//	               in an outage
//	owner          where a session is in a cluster, and whether this node may have it: seats,
//	               claims, hand-offs, clients that are passed on
//	upgrade        the sessions' way to the next process, and from the one before: both processes,
//	               and what each says to the other
//	watch          what operators see: log, metrics, events, refusals, overview
//	control        what the control API does to sessions
//	policy         what can be set for each route
//	newest         which messages are states: NAME=MATCH, pure
//	registry       the living and the remembered sessions: records, tombstones, histories;
//	               limits; duplicate sessions of a player; lists
//	handshake      the opening handshake: what a request must have, Host, Origin, the 101
//	listen         accepting: idle connections under descriptor pressure, and what an upgrade
//	               pauses and hands over
//	secure         TLS for clients: certificate files, ACME
//	session        everything about one session, pure. Its state changes in
//	               transitions.go and nowhere else; leg.go is what drivers call
//	transport      sockets, goroutines, locks and the clock: transport/netio has two
//	               goroutines for each session, and one lock, never held over a read, a
//	               write or an observer; transport/epoll has event loops, one goroutine each,
//	               between which sessions move: its doc comment says when;
//	               transport/rawconn reads and writes their sockets. A process uses one of
//	               them; TLS and deflate are layers above the sockets of both
//	tlv            the encoding of frozen sessions and records; handover: the channel to another
//	               process, with descriptors. It knows nothing of sessions
//	replay         memory of messages; frame and wire: bytes, pure
//	deflate        permessage-deflate: a net.Conn between a client's socket and transport
//	events         recent events and their readers: the control API's stream, webhook
//	admin          the admin address: API, dashboard, metrics, health
//	cluster        the other nodes: which live, who has a session or a player; cluster/engine: NATS
//	hop            what one node tells another about a client that it passes on; link: the one
//	               connection that carries all of them; pipe: copies the bytes of both
//	config         flags, config file, environment; server is what the command does; asynclog:
//	               log lines that never block
//	demo           the demo's page and games; upstream/demo: its game server
//	faults         with --dev and --demo: the relay between a client's socket and the gateway, which
//	               makes one client's connections fail
//	dev            with --dev: the panel in pages, and what it asks; it stands in front of the Gateway
//	client         the Go client, which shares wire with the gateway
//	upstream       targets, header filtering, the dial, the proxy
//	tokens         resume tokens; tokens/generation: which are superseded; tokens/login: the
//	               players' own JWTs; tokens/keyfile: keys in files; tokens/strict: JSON without
//	               what two readers understand differently
//	web            the browser client, dashboard and demo as files; web/bundle makes them
//
// A session's record does not know the Gateway. Of these packages only admin, config, demo and server
// import this one; each of the others gets what it needs in its Options.
//
// Lock order: dial.Dialer, registry, then a transport.Session. An Observer is called with
// no lock held, so it may take any.
//
// # Exactly-once delivery, and its limits
//
// Between the client's library and the upstream's socket every data message of a
// resumable session arrives once and in order, both ways, across any number of
// connections within the grace period, while this process, its successors in upgrades, and the
// nodes that it hands durable sessions off to live. The guarantee ends with a crash (docs/sessions.md
// says what is left of it for durable sessions), where --overflow drops messages (and reports how many), where
// --newest lets a newer message replace one (and reports how many, and where), and at the
// upstream's socket: the game server is responsible for what it has read.
package gateway
