package session

import "time"

// A Leg is one connection of a session as its driver sees it: to the game server
// (*Upstream) or to a client (*Attachment). The driver owns the socket. It passes the
// Leg with each call, and need not know which of the two it is.
//
// The calls for one Leg are:
//
//	read   while WantsRead: Room, read from the socket, Read; then write both legs, Retain
//	write  while Out returns bytes: write to the socket, Wrote; or WriteFailed
//	close  as CloseMode says, once Out returns nothing more; Disconnected when the socket ended
//
// A Leg that the session has replaced only says what its connection must still be
// sent. Its input changes nothing.
type Leg interface {
	// CloseMode returns what the driver must do with the connection. It only ever grows.
	CloseMode() CloseMode
	// FlushTime returns how long the peer may take to read the remaining output, counted
	// from the moment that CloseMode is Linger.
	FlushTime() time.Duration
	// HalfClose reports whether the driver shuts down writing once everything is sent. A
	// game server may mistake the end of the stream for the end of the connection, so it
	// gets none before the connection is closed.
	HalfClose() bool
	// Direct reports whether Room returns memory of the session's own. Otherwise the
	// driver reads into memory of its own while WantsRead, and need not call Room.
	Direct() bool

	wants(s *Session) bool
	room(s *Session) []byte
	read(s *Session, now Time, p []byte)
	hasOutput(s *Session, now Time) bool
	out(s *Session, now Time, dst [][]byte) [][]byte
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
	// LingerTime limits the wait for the peer to close its side once everything was sent. Closing
	// at once would make the kernel reset the connection, and the peer lose the last frames.
	LingerTime = time.Second

	clientFlush   = 5 * time.Second  // protocol section 11: an undeliverable close is given up
	upstreamFlush = 10 * time.Second // protocol section 6: for what the client sent before its bye
)

// MaxLingering is the max number of client connections of one session in CloseMode
// Linger. Each takeover leaves one behind, and a client that does not read keeps it
// open: without the limit, twenty takeovers would hold twenty descriptors.
const MaxLingering = 4

// WantsRead reports whether l's connection may be read now.
func (s *Session) WantsRead(l Leg) bool { return l.wants(s) }

// Room returns where the next read from a Direct leg's connection must go, nil while
// nothing may be read: the upstream is read straight into the replay buffer. Read must
// follow, if only with no bytes.
func (s *Session) Room(l Leg) []byte { return l.room(s) }

// Read processes bytes read from l's connection; p is the beginning of what Room
// returned, or memory of the driver's own. It unmasks and masks in p, and what Out returns
// for the upstream may point into p until Retain.
func (s *Session) Read(now Time, l Leg, p []byte) { l.read(s, now, p) }

// Retain copies input that still lies in the caller's buffer, since the upstream has not
// taken it. It must be called before that buffer is used again.
func (s *Session) Retain() {
	s.q.retain()
	s.recharge()
}

// Out appends to dst the bytes that must be written to l's connection now. Until Wrote
// reports how many were written, it returns nothing more.
func (s *Session) Out(now Time, l Leg, dst [][]byte) [][]byte {
	if !l.hasOutput(s, now) {
		return dst
	}
	return l.out(s, now, dst)
}

// Wrote reports that l's connection accepted the first n bytes that Out returned, and
// whether its socket is full now: bytes that a full socket accepts later are a sign of
// life, protocol section 5.4. look asks a driver that can to call Socket at once: a ping
// has just been written, and the socket's state now shows where in the stream it ends.
func (s *Session) Wrote(now Time, l Leg, n int, full bool) (look bool) {
	return l.wrote(s, now, n, full)
}

// WriteBlocks reports that the last output of Out is written by a call that blocks until the
// socket takes all of it. Only afterwards is it known whether the socket was full; until
// then, a long wait counts as full.
func (s *Session) WriteBlocks(now Time, l Leg) { l.waits(s, now) }

// WatchesSocket reports whether the state of l's socket matters now. If so, a driver that
// can must call Socket before Tick.
func (s *Session) WatchesSocket(l Leg) bool { return l.watchesSocket(s) }

// Socket processes the state of l's socket: before a Tick if WatchesSocket reports true,
// and after a Wrote that asks for it.
func (s *Session) Socket(now Time, l Leg, st SocketState) { l.socketState(s, now, st) }

// WriteFailed reports that l's connection accepts no more bytes. A client is disconnected
// at once; a game server is still read, since its last messages may wait in the socket.
func (s *Session) WriteFailed(now Time, l Leg, why string) { l.writeFailed(s, now, why) }

// Disconnected reports that l's connection has ended, with an error or without, and without a
// Close frame.
func (s *Session) Disconnected(now Time, l Leg, why string) { l.gone(s, now, why) }

// An AttachFunc attaches a client to a session by AttachFirst or Attach, or returns why
// it does not.
type AttachFunc func(s *Session, now Time) (*Attachment, *Refusal)
