// Package message makes messages that can be checked without being stored: message n of
// a stream is always the same bytes. It shares no code with the gateway.
package message

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// A Stream is one direction of one session.
type Stream struct {
	Seed    uint64
	Up      bool // from the client to the game server
	Session int  // of the run; a second try of a first connection is another session
	Try     int

	Large    bool // one of eight messages is
	States   bool // three of four messages are states, for --newest: see states
	Counting bool // the counting game's: the client's message n is n, and the game's is JSON that has n
}

// filler pads messages; binary ones contain it unchanged.
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

// dle begins the protocol's control messages: data may begin with it, too.
const dle = 0x10

// Message returns message n, from 1.
func (s Stream) Message(n uint64) (isText bool, p []byte) {
	if s.Counting {
		return true, strconv.AppendUint(nil, n, 10)
	}
	if k := s.state(n); k > 0 {
		_, p = Stream{Seed: s.Seed, Up: s.Up, Session: s.Session, Try: s.Try, Large: s.Large}.plain(n, true)
		return true, append(append([]byte(states[k].head), p...), states[k].tail...)
	}
	return s.plain(n, false)
}

// states are what surrounds a message of each key; 0: a message that is no state.
var states = [4]struct{ head, tail string }{1: {"state1 ", ""}, 2: {"state2 ", ""}, 3: {`{"x":[{}],"state":3,"m":"`, `"}`}}

// state returns the key of message n, 0 for none.
func (s Stream) state(n uint64) int {
	if !s.States {
		return 0
	}
	return int(n % uint64(len(states)))
}

// plain is Message without what makes it a state, which must be text that JSON can hold.
func (s Stream) plain(n uint64, state bool) (isText bool, p []byte) {
	r := rand.New(rand.NewPCG(s.Seed, n<<1^uint64(s.Session)<<32^uint64(s.Try)<<56^s.direction()))
	isText = r.IntN(4) > 0 || state
	for range max(0, r.IntN(8)-4) {
		if !state {
			p = append(p, dle)
		}
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

// size is mostly that of a game's update, and now and then that of a snapshot.
func (s Stream) size(r *rand.Rand) int {
	switch v := r.IntN(1000); {
	case s.Large && v < 125:
		return r.IntN(60 << 10)
	case v < 900:
		return r.IntN(120)
	case v < 985:
		return r.IntN(1500)
	case v < 998:
		return r.IntN(12 << 10)
	}
	return r.IntN(80 << 10)
}

// head says which message of which stream it is, for people and for number.
func (s Stream) head(p []byte, n uint64) []byte {
	return fmt.Appendf(p, "%s|%d.%d|%d|", s.name(), s.Session, s.Try, n)
}

func (s Stream) name() string {
	if s.Up {
		return "up"
	}
	return "down"
}

// number returns the number in a message of the stream; false if it belongs to another.
func (s Stream) number(p []byte) (uint64, bool) {
	if s.Counting {
		var m struct{ N uint64 }
		err := json.Unmarshal(p, &m)
		return m.N, err == nil
	}
	try, n, ok := s.place(p)
	return n, ok && try == s.Try
}

// place returns the try and the number in a message, if it belongs to the stream's
// session and direction.
func (s Stream) place(p []byte) (try int, n uint64, ok bool) {
	for _, k := range states[1:] {
		p = bytes.TrimPrefix(p, []byte(k.head))
	}
	f := bytes.SplitN(bytes.TrimLeft(p, "\x10"), []byte("|"), 4)
	if len(f) < 4 || string(f[0]) != s.name() {
		return 0, 0, false
	}
	session, rest, _ := strings.Cut(string(f[1]), ".")
	try, err := strconv.Atoi(rest)
	n, bad := strconv.ParseUint(string(f[2]), 10, 64)
	return try, n, err == nil && bad == nil && n > 0 && session == strconv.Itoa(s.Session)
}

// Verdicts counts the errors in the messages received.
type Verdicts struct{ Lost, Twice, Disorder, Wrong uint64 }

// Bad reports whether there are any.
func (v Verdicts) Bad() bool { return v != Verdicts{} }

// Add adds those of another.
func (v *Verdicts) Add(o Verdicts) {
	v.Lost += o.Lost
	v.Twice += o.Twice
	v.Disorder += o.Disorder
	v.Wrong += o.Wrong
}

const maxFaults = 20 // descriptions per stream; further ones are only counted

// A Check checks messages in the order received. Its zero value with a Stream expects
// message 1.
type Check struct {
	Stream
	Taken    uint64 // the newest one in order
	Bytes    uint64
	Verdicts Verdicts
	Faults   []string
	missing  map[uint64]bool

	// Staged allows the stream to continue with a later try, whose message 1 comes next.
	Staged bool
	Came   uint64 // correct messages, of all tries
	First  uint64 // with Midway, the first number
	Again  uint64 // allowed repeats

	Newer uint64 // with States: so many must be sent, since a message was replaced of which that is the next of its key

	midway, rewound bool
	replaced        uint64         // and not settled
	best            uint64         // Taken before Rewind
	past            map[int]uint64 // with Staged, what Taken was of earlier tries
}

// Midway allows the next message to be any one: the check continues from there.
func (c *Check) Midway() { c.midway = true }

// Rewind allows the next message to be an earlier one: the ones after it repeat, and
// are counted.
func (c *Check) Rewind() { c.rewound = true }

// Had returns how many messages of a try were taken, with Staged.
func (c *Check) Had(try int) uint64 {
	if try == c.Try {
		return c.Taken
	}
	return c.past[try]
}

// Skip skips n messages, which the other side has reported lost.
func (c *Check) Skip(n uint64) { c.Taken += n }

// Replaced takes n messages that the other side says newer ones have replaced. With Staged the next message shows of
// which try they were.
func (c *Check) Replaced(n uint64) {
	if c.replaced += n; !c.Staged {
		c.settle(n)
	}
}

// settle takes n of them as messages of this try.
func (c *Check) settle(n uint64) {
	c.replaced -= n
	for range n {
		c.Taken++
		if c.state(c.Taken) == 0 {
			c.Verdicts.Lost++
			c.fault("message %d was lost: it was skipped, and is no state", c.Taken)
		}
		c.Newer = max(c.Newer, c.Taken+uint64(len(states)))
	}
}

// turn follows an allowed change of position.
func (c *Check) turn(p []byte) {
	try, n, ok := c.place(p)
	if !ok {
		return
	}
	if c.Staged && try > c.Try {
		if lead := min(c.replaced, n-1); try == c.Try+1 {
			c.settle(c.replaced - lead)
		} else {
			c.replaced = lead // others may be of a try of which nothing came
		}
		if c.past == nil {
			c.past = map[int]uint64{}
		}
		c.past[c.Try] = c.Taken
		c.Try, c.Taken, c.best, c.missing, c.Newer = try, 0, 0, nil, 0 // a newer one may be lost with a node
	}
	c.settle(c.replaced)
	switch {
	case try != c.Try:
	case c.midway:
		c.Taken, c.First = n-1, n
	case c.rewound && n <= c.Taken:
		c.Again += c.Taken + 1 - n
		c.best = max(c.best, c.Taken)
		c.Taken = n - 1
	}
	c.midway, c.rewound = false, false
}

// Take checks the next message.
func (c *Check) Take(isText bool, p []byte) {
	c.Bytes += uint64(len(p))
	c.turn(p)
	wantText, want := c.Message(c.Taken + 1)
	n, ok := c.number(p)
	if isText == wantText && (bytes.Equal(p, want) || c.Counting && ok && n == c.Taken+1) {
		c.Taken++
		c.Came++
		return
	}
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

// Complete checks a finished stream: all messages up to sent must have arrived.
func (c *Check) Complete(sent uint64) {
	c.Taken = max(c.Taken, c.best) // the repetition of what has arrived may be incomplete
	if c.Newer > sent {
		c.Verdicts.Lost++
		c.fault("message %d was lost: it was skipped, and nothing newer was sent than message %d", c.Newer-uint64(len(states)), sent)
	}
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
	if len(c.Faults) < maxFaults {
		c.Faults = append(c.Faults, c.name()+": "+fmt.Sprintf(format, args...))
	}
}

func show(p []byte) string {
	if len(p) > 48 {
		return fmt.Sprintf("%q... (%d bytes)", p[:48], len(p))
	}
	return fmt.Sprintf("%q", p)
}
