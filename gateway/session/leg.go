package session

import "time"

// A Leg is one connection of a session as its driver sees it: to the game server
// (*Upstream) or to a client (*Attachment). The driver owns the socket. It passes the
// Leg with each call, and need not know which of the two it is.
//
// The calls for one Leg are:
//
//	read   while Wants: Room, read from the socket, Read; then write both legs, Retain
//	write  while Out returns bytes: write to the socket, Wrote; or WriteFailed
//	close  as CloseMode says, once Out returns nothing more; Gone when the socket ended
//
// A Leg that the session has replaced only says what its connection must still be
// sent. What arrives for it changes nothing.
type Leg interface {
	// CloseMode is what the driver must do with the connection. It only ever grows.
	CloseMode() CloseMode
	// FlushTime is how long the peer may take what is left to be sent, from the moment
	// that CloseMode is Linger.
	FlushTime() time.Duration
	// HalfClose reports whether the driver shuts down writing once all is sent. A game
	// server may take the end of the stream for the end of the connection, and gets
	// none before the connection is closed.
	HalfClose() bool

	wants(s *Session) bool
	room(s *Session, lend func() []byte) []byte
	read(s *Session, now Time, p []byte)
	out(s *Session, now Time, dst [][]byte) [][]byte
	hasOutput(s *Session, now Time) bool
	wrote(s *Session, now Time, n int, full bool) (look bool)
	waits(s *Session, now Time)
	watchesSocket(s *Session) bool
	socketState(s *Session, now Time, st SocketState)
	writeFailed(s *Session, now Time, why string)
	gone(s *Session, now Time, why string)
}

// A CloseMode is what the driver must do with a connection.
type CloseMode uint8

// The close modes.
const (
	Open   CloseMode = iota // read and write
	Linger                  // write what Out returns, half-close, read to the end for LingerTime, close
	Shut                    // close
	Reset                   // close with a reset
)

const (
	// LingerTime is how long the peer has to close its end once all was sent.
	LingerTime = time.Second

	clientFlush   = 5 * time.Second
	upstreamFlush = 10 * time.Second // what was received before is written first, protocol section 5 (bye)
)

// MaxLingering is how many client connections a session has at most in CloseMode
// Linger. Each takeover leaves one behind, which takes its time if its client does not
// read: without a limit twenty of them, and a descriptor each.
const MaxLingering = 4

// Wants reports whether l's connection may be read now.
func (s *Session) Wants(l Leg) bool { return l.wants(s) }

// Room is where the next read from l's connection must go; nil while nothing may be
// read. The upstream is read straight into the replay buffer, a client into what lend
// returns. Read must follow, if only with nothing.
func (s *Session) Room(l Leg, lend func() []byte) []byte { return l.room(s, lend) }

// Read takes in what was read from l's connection; p is the beginning of what Room
// returned. It works in p, and what Out returns for the upstream may lie there until
// Retain.
func (s *Session) Read(now Time, l Leg, p []byte) { l.read(s, now, p) }

// Retain copies what Read left in its caller's buffer and the upstream has not taken.
// It must be called before that buffer is used again.
func (s *Session) Retain() {
	s.q.retain()
	s.recharge()
}

// HasOutput reports whether there may be something to write to l's connection: where it
// is false Out returns nothing.
func (s *Session) HasOutput(now Time, l Leg) bool { return l.hasOutput(s, now) }

// Out appends to dst what must be written to l's connection now. Until Wrote says how
// much of it was, it returns nothing more.
func (s *Session) Out(now Time, l Leg, dst [][]byte) [][]byte {
	if !l.hasOutput(s, now) {
		return dst
	}
	return l.out(s, now, dst)
}

// Wrote says that the first n bytes of what Out returned were accepted by l's
// connection, and whether that was full: then bytes that it accepts later count as a
// sign of life. With look a ping has just been written: a driver that can calls
// Socket now, so that it is known where the ping ends.
func (s *Session) Wrote(now Time, l Leg, n int, full bool) (look bool) {
	return l.wrote(s, now, n, full)
}

// Waits says that what Out returned last is written by waiting until the socket takes
// all of it. Whether it is full is known when the wait is over; until then, a long
// wait says so.
func (s *Session) Waits(now Time, l Leg) { l.waits(s, now) }

// WatchesSocket reports whether the state of l's socket would tell anything now. Then
// Socket must be called before Tick, if the driver can.
func (s *Session) WatchesSocket(l Leg) bool { return l.watchesSocket(s) }

// Socket takes in the state of l's socket: before a Tick if WatchesSocket says so, and
// after a Wrote that asks for it.
func (s *Session) Socket(now Time, l Leg, st SocketState) { l.socketState(s, now, st) }

// WriteFailed says that l's connection takes nothing more. What a game server has sent
// may still be read; a client that takes nothing is disconnected at once.
func (s *Session) WriteFailed(now Time, l Leg, why string) { l.writeFailed(s, now, why) }

// Gone says that l's connection has ended, with an error or without, and that no Close
// frame said so.
func (s *Session) Gone(now Time, l Leg, why string) { l.gone(s, now, why) }

// An AttachFunc attaches a client to a session, by AttachFirst or Attach, or returns why
// it does not.
type AttachFunc func(s *Session, now Time) (*Attachment, *Refusal)
