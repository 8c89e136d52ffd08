package upgrade

import (
	"slices"
	"strings"
	"time"

	"reseat/gateway/handover"
	"reseat/gateway/transport"
	"reseat/gateway/watch"
)

// This file has what both processes of an upgrade say to each other.

// channelEnv names the descriptor of the channel in the environment of a process that
// SIGUSR2 has started.
const channelEnv = "_RESEAT_UPGRADE"

// withoutChannel is the environment without what SIGUSR2 has added.
func withoutChannel(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(e string) bool { return strings.HasPrefix(e, channelEnv+"=") })
}

const (
	// freezeLimit limits the time that sessions stand still. It is below any client's
	// suspicion that its connection is dead.
	freezeLimit = 3 * time.Second
	// maxForwarding limits the older processes that still forward bytes.
	maxForwarding = 2
	// maxOlder limits all older processes: others finish requests.
	maxOlder = 16
	// settleTime limits the wait of a freeze for reads and writes in flight.
	settleTime = 300 * time.Millisecond
	// batchSessions and batchBytes bound a message with sessions: descriptors in flight
	// count against the limit of open files.
	batchSessions = handover.MaxFDs / 2
	batchBytes    = 1 << 20
	// batchWindow limits the unacked messages with sessions.
	batchWindow = 2
	// batchTombstones limits the tombstones in a message.
	batchTombstones = 200
)

// A hello is the body of handover.Hello.
type hello struct {
	Version string
	Formats []int // of session.Freeze, newest first
	PID     int
	Posts   bool // it reads handover.Posts
}

// An offer is the body of handover.Offer. Its descriptors are the listeners, and then the
// channels to older processes.
type offer struct {
	Version     string
	Format      int
	PID         int
	Sessions    int
	BufferBytes int64
	Descriptors int             // in use by sessions and connections
	Listeners   []inheritedAddr // in the order of their descriptors
	Older       int
	Monotonic   time.Duration // handover.Monotonic at the session.Time Now
	Now         int64
	Secret      []byte // of the token key, if it was made at start
	SigningKey  string
	Routes      map[string]string // see Sessions.InheritRoutes
	Node
	Pump  time.Duration
	Posts bool // handover.Posts follow
}

// An inheritedAddr is a listener: which one, and the setting that it was opened with.
type inheritedAddr struct{ Name, Setting string }

// A rest is the body of handover.Rest.
type rest struct {
	Gateway Rest
	Samples []watch.Totals
	Left    []string      // ids of the sessions that follow later
	Pump    time.Duration // how long this process forwards bytes
	Older   time.Duration // how long older processes do
	Frozen  time.Duration // handover.Monotonic of the freeze
	Until   time.Duration // handover.Monotonic when the predecessor will have given up
}

// A lateConn is a connection in the body of handover.Conns, whose descriptor is the message's.
type lateConn struct {
	Listener string
	LateConn
}

// sessionsBody makes the body of a handover.Sessions message of sessions, and lists their descriptors.
func sessionsBody(list []FrozenSession) (body [][]byte, fds []int) {
	for _, s := range list {
		size := 0
		for _, c := range s.Content {
			size += len(c)
		}
		var has byte
		for i, end := range []transport.End{s.Up, s.Down} {
			if end.FD >= 0 {
				has |= 1 << i
				fds = append(fds, end.FD)
			}
			if end.Conn != nil || end.Forwarded {
				has |= forwardedFlag << i
			}
			if end.Forwarded {
				has |= olderFlag
			}
		}
		head := handover.AppendPart([]byte{has}, len(s.Record))
		head = append(head, s.Record...)
		head = append(handover.AppendPart(head, len(s.State)), s.State...)
		body = append(body, handover.AppendPart(head, size))
		body = append(body, s.Content...)
	}
	return body, fds
}

// The flags of a session, besides two for the descriptors that follow: its upstream's and its
// client's.
const (
	olderFlag     = 1 << 2 // an older process forwards a connection
	forwardedFlag = 1 << 3 // the predecessor or an older process forwards the upstream's; shifted by one, the client's
)

// eachSession calls f with each session of a handover.Sessions message. Missing descriptors are
// negative. After an error the descriptors that were not passed to f stay in m.
func eachSession(m *handover.Message, f func(s Received) error) error {
	b := m.Body
	for len(b) > 0 {
		has := b[0]
		b = b[1:]
		var parts [3][]byte
		for i := range parts {
			var err error
			if parts[i], b, err = handover.CutPart(b); err != nil {
				return err
			}
		}
		fds := [2]int{-1, -1}
		for i := range fds {
			if has>>i&1 == 0 {
				continue
			}
			if len(m.FDs) == 0 {
				return handover.ErrProtocol
			}
			fds[i], m.FDs = m.FDs[0], m.FDs[1:]
		}
		received := Received{Record: parts[0], State: parts[1], Content: parts[2], Up: fds[0], Down: fds[1], Older: has&olderFlag != 0, UpForwarded: has&forwardedFlag != 0, DownForwarded: has&(forwardedFlag<<1) != 0}
		if err := f(received); err != nil {
			return err
		}
	}
	return nil
}

func closeEnds(s Received) {
	handover.CloseFD(s.Up)
	handover.CloseFD(s.Down)
}
