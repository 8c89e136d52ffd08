// Package gateway is the client address: it answers handshakes, makes sessions,
// finds them again for a resume, and passes ordinary requests on.
//
// # Two things that are kept apart
//
// A session is the player's: the upstream connection, the counts of both
// directions, the replay buffer, the grace period. A connection is one
// WebSocket; it is attached to one session or to none. A session outlives its
// connections; each tenure of a connection is an attachment and has an epoch,
// and whatever comes of an older epoch changes nothing. With --disconnect hard
// it outlives its upstream's connections in the same way.
//
// # The way of a message
//
//	down  drive reads the upstream straight into the session's replay.Buffer;
//	      session walks over the frame headers and numbers whole messages;
//	      drive writes to the client from the attachment's cursor, control
//	      messages at message boundaries; an ack moves the buffer's base.
//	      Catching up and living are the same loop: only the cursor differs.
//	up    drive reads the client; session gathers whole messages, takes control
//	      messages out, admits data under the epoch (hello.received), gives each
//	      frame a fresh masking key; drive writes to the upstream; what has been
//	      written is acked.
//
// There is no third path. A plain client takes the same ones, without control
// messages, acks and a second attachment.
//
// # Who owns what
//
//	client     the other end: a client for Go, which shares wire with the gateway
//	settings   what a flag is and whether a value can hold
//	upstream   where a request goes, which headers pass, the dial
//	tokens     what a token says and whether it is genuine
//	           (tokens/generation: whether it is spent)
//	tokens/login  whose a session is: the player's own JWT
//	gateway    which sessions there are: registry.go. What a handshake is:
//	           serve in accept.go. The dial of a hard resume: reconnect.go.
//	           Which of a player's sessions stays: duplicate.go. What an event
//	           means outside: observe.go; what is kept of it: history.go. What
//	           is shown of all sessions at once: overview.go, view.go.
//	           Which connections wait, and who goes where descriptors are
//	           short: listen
//	events     what has happened lately, and who reads it: the control API's
//	           stream, and webhook, which posts it
//	session    everything about one session. Its state changes in
//	           transitions.go and nowhere else
//	deflate    permessage-deflate, --compression: a net.Conn between a client's
//	           socket and drive
//	drive      sockets, goroutines, locks and the clock: one lock a session,
//	           never held over a read, a write or an observer
//	replay     memory of messages; frame and wire: bytes, purely
//
// Lock order: registry, then a drive.Session. A Watcher is called with no lock
// held, so it may take either.
//
// # What is exactly once, and where that ends
//
// Between the client's library and the upstream's socket every data message of
// a resumable session arrives once and in order, both ways, across any number
// of connections within the grace period, while this process lives. It ends
// where the process ends, where --overflow drops (and says how much), and
// behind the upstream's socket: what a game server has read is its own.
package gateway
