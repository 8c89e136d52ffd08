// Package handover is the channel between a process and its successor in an upgrade: a
// Unix stream socket that carries messages and descriptors. It knows nothing of sessions.
//
// The predecessor (Old) has everything until it sends Commit, and the successor (New)
// reads and writes no connection before it has received that:
//
//	New  Hello       its version and the formats that it can read
//	Old  Offer       what there is to hand over, with the listeners; or Abort
//	New  Accept      or Abort
//	Old  Tombstones  any number, while it still serves
//	Old  Events      for the event stream, also while it serves
//	Old  Sessions    any number, frozen from here on; each answered by Ack
//	Old  Conns       connections without a complete request
//	Old  Rest        everything else
//	New  Ready       all is restored, and nothing touched
//	Old  Event       any number, what has happened during the freeze
//	Old  Commit      from here on all is the successor's
//	Old  Sessions, Conns, Event, Tombstones   what was not finished at the time of the freeze
//	Old  Posts       webhook events that it has not delivered
//	New  Adopted     it reads and writes: Old may use the processor to tidy up
//	New  Serving     it serves, and is the main process for the supervisor: Old may exit
//	Old  Done        no further sessions follow
//
// If New closes the socket before Commit, or either sends Abort, Old continues as if nothing had
// happened. Old does not close it before Commit, unless New has received an Abort: if it is
// closed after Rest without that, Old has crashed, and New continues as after Commit.
package handover

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// A Kind says what a Message is.
type Kind uint8

// The kinds of messages: see the package's comment.
const (
	Hello Kind = iota + 1
	Offer
	Accept
	Abort
	Tombstones
	Events
	Sessions
	Ack
	Conns
	Rest
	Ready
	Commit
	Event
	Done
	Adopted
	Serving
	Posts
)

// A Message is what Conn.Receive returns. Its descriptors are the receiver's.
type Message struct {
	Kind Kind
	Body []byte
	FDs  []int
}

const (
	headSize = 16
	// magic begins each message: a peer that is no gateway is noticed at once.
	magic = "RSU1"
	// maxBody bounds a message: one batch of sessions with their buffers.
	maxBody = 1 << 30
	// MaxFDs is the maximum number of descriptors in one message: below SCM_MAX_FD of
	// unix(7), which is 253.
	MaxFDs = 200
)

// ErrProtocol means that the peer does not follow this package's protocol.
var ErrProtocol = errors.New("the process at the other end of the upgrade socket does not speak this protocol")

// ErrNobody is returned by Dial if no process listens there.
var ErrNobody = errors.New("nobody listens there")

// ErrUnsupported means that this system cannot hand connections over.
var ErrUnsupported = errors.New("upgrades need Linux")

// An AbortError is the reason that the peer gave in its Abort.
type AbortError struct{ Reason string }

func (e *AbortError) Error() string { return e.Reason }

func appendHead(b []byte, k Kind, size, fds int) []byte {
	b = append(b, magic...)
	b = append(b, byte(k), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(fds))
	return binary.BigEndian.AppendUint64(b, uint64(size))
}

func parseHead(b []byte) (k Kind, size, fds int, err error) {
	if string(b[:len(magic)]) != magic || b[5] != 0 {
		return 0, 0, 0, ErrProtocol
	}
	n := binary.BigEndian.Uint64(b[8:])
	if n > maxBody {
		return 0, 0, 0, ErrProtocol
	}
	return Kind(b[4]), int(n), int(binary.BigEndian.Uint16(b[6:])), nil
}

// SendJSON sends a message whose body is v in JSON.
func (c *Conn) SendJSON(k Kind, fds []int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.Send(k, fds, b)
}

// SendAbort ends the upgrade, and sends the peer the reason.
func (c *Conn) SendAbort(why error) error { return c.Send(Abort, nil, []byte(why.Error())) }

// Expect receives a message of kind k. If the peer has sent Abort, the error is an
// *AbortError.
func (c *Conn) Expect(k Kind) (Message, error) {
	m, err := c.Receive()
	switch {
	case err != nil:
		return m, err
	case m.Kind == Abort:
		m.Close()
		return m, &AbortError{string(m.Body)}
	case m.Kind != k:
		m.Close()
		return m, fmt.Errorf("%w: message %d, want %d", ErrProtocol, m.Kind, k)
	}
	return m, nil
}

// ExpectJSON receives a message of kind k whose body is v in JSON.
func (c *Conn) ExpectJSON(k Kind, v any) (Message, error) {
	m, err := c.Expect(k)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(m.Body, v); err != nil {
		m.Close()
		return m, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return m, nil
}

// AppendPart appends one of several parts of a body.
func AppendPart(b []byte, size int) []byte { return binary.AppendUvarint(b, uint64(size)) }

// CutPart returns the first part of a body, and the rest.
func CutPart(b []byte) (part, rest []byte, err error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, ErrProtocol
	}
	return b[w : w+int(n)], b[w+int(n):], nil
}
