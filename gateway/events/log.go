package events

import (
	"context"
	"errors"
)

// A Log keeps the events of all nodes of a cluster in one order, for some minutes. Each message has a
// number, one more than the message before; no number is used twice. All methods are safe for
// concurrent use. Where the cluster can have no Log their error is ErrNoLog. After any other error they
// may be tried again.
type Log interface {
	// Range returns the numbers of the first message that is kept and of the last one, which may not be
	// kept any more.
	Range(ctx context.Context) (first, last uint64, err error)
	// Append stores a message of a node, once for each id, and returns its number.
	Append(ctx context.Context, node, id string, data []byte) (number uint64, err error)
	// Read returns the messages with numbers after that one, in order, limit at the most. It may not have
	// the newest yet.
	Read(ctx context.Context, after uint64, limit int) ([]Message, error)
	// NewestOf returns the newest message of a node. Its number is 0 if there is none.
	NewestOf(ctx context.Context, node string) (Message, error)
	// Watch calls f with each message that is stored, one at a time. Some may be missing.
	Watch(f func(Message)) (stop func(), err error)
	// Advance drops all messages. The next number is greater than past, and than the time in
	// microseconds.
	Advance(ctx context.Context, past uint64) error
}

// A Message is in a Log.
type Message struct {
	Number uint64
	Node   string // id
	Data   []byte
}

// ErrNoLog means that this cluster has no Log.
var ErrNoLog = errors.New("there is no stream of events")

// Each message has places IDs. The last of its events is at lastPlace, so that an ID says whether the message
// was read to its end. Nodes of all versions agree on this.
const (
	places    = 2000
	lastPlace = 999
)

// MaxInMessage bounds the events of a message.
const MaxInMessage = lastPlace

// PlaceOf returns the ID of event i of n in the message with a number.
func PlaceOf(number uint64, i, n int) uint64 {
	if i == n-1 {
		i = lastPlace
	}
	return number*places + uint64(i)
}

// NextPlace returns which message has the event after the one with an ID, and how many events of that
// message come before it.
func NextPlace(id uint64) (number uint64, skip int) {
	if id%places >= lastPlace {
		return id/places + 1, 0
	}
	return id / places, int(id%places) + 1
}
