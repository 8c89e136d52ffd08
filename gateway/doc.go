// Package gateway is the client address: it answers handshakes, makes sessions, finds
// them again for a resume, and passes ordinary requests on.
//
// # Sessions and connections
//
// A session belongs to one client. It has the connection to the game server (the
// upstream), the counts of both directions, the replay buffer and the grace period. A
// connection is one WebSocket of the client; it is attached to one session or to none.
// A session outlives its connections. Each attachment of a connection has an epoch, and
// nothing that an older epoch brings has any effect. With --disconnect hard a session
// outlives its upstream connections in the same way.
//
// # The path of a message
//
//	down  transport reads the upstream straight into the session's replay.Buffer; session
//	      walks over the frame headers and numbers whole messages; transport writes to the
//	      client from the attachment's cursor, control messages at message boundaries;
//	      an ack moves the buffer's base. Replaying and live sending are the same loop:
//	      only the cursor differs. A message for a slow or detached client waits in the
//	      replay.Buffer and nowhere else.
//	up    transport reads the client; session assembles messages, takes control messages
//	      out, admits data under the epoch (hello.received), gives each frame a fresh
//	      masking key; transport writes to the upstream; what has been written is acked.
//
// A plain client uses the same two paths, without control messages, acks and a second
// attachment.
//
// # The path of a handshake
//
//	ServeHTTP (gateway.go)  Host, methods, the gateway's own pages, the route (place.go)
//	serve (accept.go)       RFC 6455, Origin, then one of
//	  begin                 a new session: login, limits, dial, 101, attach
//	  resume                by token (resume.go): 101 first, then token, session, login,
//	                        Origin, received; then attach
//	  resumeByCookie        a plain client (cookie.go); then the same attach
//	Create (ahead.go)       a new session by the control API, without a client
//
// attach (resume.go) may have the upstream dialled again first: redial.go.
//
// # Who owns what
//
//	gateway        decisions about requests: accept.go, resume.go, cookie.go, ahead.go,
//	               redial.go. What an event means outside: observe.go. What operators
//	               see: overview.go, routes.go, refused.go. Changes by the
//	               control API: steer.go. Shutdown: drain.go. Memory pressure: relieve in
//	               drain.go
//	policy         what can be set for each route
//	registry       which sessions there are, and were: records, tombstones, histories;
//	               the limits on them; which session of a player stays; lists
//	handshake      the opening handshake: what a request must have, Host, Origin, the 101
//	listen         accepted connections that wait, under descriptor pressure
//	session        everything about one session, pure. Its state changes in
//	               transitions.go and nowhere else; leg.go is what drivers call
//	transport      sockets, goroutines, locks and the clock: transport/netio has two
//	               goroutines for each session, and one lock, never held over a read, a
//	               write or an observer; transport/epoll has event loops
//	replay         memory of messages; frame and wire: bytes, pure
//	deflate        permessage-deflate: a net.Conn between a client's socket and transport
//	events         recent events and their readers: the control API's stream, webhook
//	admin          the admin address: API, dashboard, metrics, health
//	config         flags, config file, environment; server is what the command does
//	client         the Go client, which shares wire with the gateway
//	upstream       where a request goes, which headers pass, the dial
//	tokens         resume tokens; tokens/generation: which are superseded;
//	               tokens/login: the players' own JWTs
//
// A session's record does not know the Gateway; what acts on it, such as observer,
// redialer and dials, has what it needs in its fields.
//
// Lock order: redialer, registry, then a transport.Session. An Observer is called with no
// lock held, so it may take any.
//
// # What is exactly once, and where that ends
//
// Between the client's library and the upstream's socket every data message of a
// resumable session arrives once and in order, both ways, across any number of
// connections within the grace period, while this process lives. It ends where the
// process ends, where --overflow drops (and says how much), and behind the upstream's
// socket: what a game server has read is its own.
package gateway
