// Package message makes messages that can be checked without being kept: message
// n of a stream is always the same bytes. It shares nothing with the gateway.
package message

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// A Stream is one direction of one session.
type Stream struct {
	Seed    uint64
	Up      bool // from the client to the game server
	Session int  // of the run; a second try at a first connection is another
	Try     int
}

// filler is what messages are filled up with; binary ones take it as it is.
var filler = func() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 256<<10)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}()

const letters = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 +-"

var text = func() []byte {
	b := make([]byte, len(filler))
	for i, c := range filler {
		b[i] = letters[int(c)%len(letters)]
	}
	return b
}()

// dle begins the protocol's control messages: data may begin with it as well.
const dle = 0x10

// Message is message n, from 1.
func (s Stream) Message(n uint64) (isText bool, p []byte) {
	r := rand.New(rand.NewPCG(s.Seed, n<<1^uint64(s.Session)<<32^uint64(s.Try)<<56^s.direction()))
	isText = r.IntN(4) > 0
	for range max(0, r.IntN(8)-4) {
		p = append(p, dle)
	}
	p = s.head(p, n)
	size, from := s.size(r), r.IntN(len(filler)/2)
	if isText {
		return true, append(p, text[from:from+size]...)
	}
	return false, append(p, filler[from:from+size]...)
}

func (s Stream) direction() uint64 {
	if s.Up {
		return 1 << 63
	}
	return 0
}

// size is mostly that of a game's message, and now and then that of a snapshot.
func (Stream) size(r *rand.Rand) int {
	switch v := r.IntN(1000); {
	case v < 900:
		return r.IntN(120)
	case v < 985:
		return r.IntN(1500)
	case v < 998:
		return r.IntN(12 << 10)
	}
	return r.IntN(80 << 10)
}

// head says whose and which message it is, for a person and for number.
func (s Stream) head(p []byte, n uint64) []byte {
	return fmt.Appendf(p, "%s|%d.%d|%d|", s.name(), s.Session, s.Try, n)
}

func (s Stream) name() string {
	if s.Up {
		return "up"
	}
	return "down"
}

// number is the number that a message of the stream says it has; false: it is
// none of the stream's.
func (s Stream) number(p []byte) (uint64, bool) {
	f := bytes.SplitN(bytes.TrimLeft(p, "\x10"), []byte("|"), 4)
	if len(f) < 4 || string(f[0]) != s.name() || string(f[1]) != fmt.Sprintf("%d.%d", s.Session, s.Try) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(f[2]), 10, 64)
	return n, err == nil && n > 0
}

// Verdicts counts what is wrong with the messages that have come.
type Verdicts struct{ Lost, Twice, Disorder, Wrong uint64 }

// Bad reports whether anything is.
func (v Verdicts) Bad() bool { return v != Verdicts{} }

// Add adds those of another.
func (v *Verdicts) Add(o Verdicts) {
	v.Lost += o.Lost
	v.Twice += o.Twice
	v.Disorder += o.Disorder
	v.Wrong += o.Wrong
}

const mostFaults = 20 // sentences a stream; the rest is only counted

// A Check takes messages in and says of each what is wrong with it. Its zero value
// but for the Stream waits for message 1.
type Check struct {
	Stream
	Taken    uint64 // the newest in order
	Bytes    uint64
	Verdicts Verdicts
	Faults   []string
	missing  map[uint64]bool
}

// Take judges the next message.
func (c *Check) Take(isText bool, p []byte) {
	c.Bytes += uint64(len(p))
	wantText, want := c.Message(c.Taken + 1)
	if isText == wantText && bytes.Equal(p, want) {
		c.Taken++
		return
	}
	n, ok := c.number(p)
	switch {
	case !ok:
		c.Verdicts.Wrong++
		c.fault("after message %d: %s is none of this session's", c.Taken, show(p))
	case n == c.Taken+1:
		c.Verdicts.Wrong++
		c.fault("message %d was altered: got %s, sent %s", n, show(p), show(want))
		c.Taken = n
	case c.missing[n]:
		delete(c.missing, n)
		c.Verdicts.Lost--
		c.Verdicts.Disorder++
		c.fault("message %d came out of order, after message %d", n, c.Taken)
	case n <= c.Taken:
		c.Verdicts.Twice++
		c.fault("message %d came twice, the second time after message %d", n, c.Taken)
	default:
		c.gap(n)
	}
}

func (c *Check) gap(n uint64) {
	c.fault("messages %d to %d were lost: message %d came after message %d", c.Taken+1, n-1, n, c.Taken)
	if c.missing == nil {
		c.missing = map[uint64]bool{}
	}
	for m := c.Taken + 1; m < n; m++ {
		c.missing[m] = true
		c.Verdicts.Lost++
	}
	c.Taken = n
}

// Complete judges a stream that is over: all up to sent had to come.
func (c *Check) Complete(sent uint64) {
	if c.Taken < sent {
		c.Verdicts.Lost += sent - c.Taken
		c.fault("messages %d to %d were lost at the end: nothing came after message %d", c.Taken+1, sent, c.Taken)
	}
	if c.Taken > sent {
		c.Verdicts.Wrong++
		c.fault("message %d came, only %d were sent", c.Taken, sent)
	}
}

func (c *Check) fault(format string, args ...any) {
	if len(c.Faults) < mostFaults {
		c.Faults = append(c.Faults, c.name()+": "+fmt.Sprintf(format, args...))
	}
}

func show(p []byte) string {
	if len(p) > 48 {
		return fmt.Sprintf("%q... (%d bytes)", p[:48], len(p))
	}
	return fmt.Sprintf("%q", p)
}
