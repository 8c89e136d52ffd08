package message

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// maxNumber is larger than any run reaches.
const maxNumber = 1 << 40

// Faults are errors that must not occur. Any of them fails a run.
type Faults struct {
	Wrong   int `json:"wrong,omitempty"`   // messages with different bytes, size or type
	Gap     int `json:"gap,omitempty"`     // messages that never arrived
	Double  int `json:"double,omitempty"`  // messages that arrived twice, or after a later one
	Refused int `json:"refused,omitempty"` // connections that could not be made
	Dropped int `json:"dropped,omitempty"` // connections that ended unexpectedly

	First string `json:"first,omitempty"` // a description of the first
}

// Any reports whether there was any fault.
func (f Faults) Any() bool { return f.Wrong+f.Gap+f.Double+f.Refused+f.Dropped > 0 }

// Add adds another place's faults.
func (f *Faults) Add(g Faults) {
	f.Wrong += g.Wrong
	f.Gap += g.Gap
	f.Double += g.Double
	f.Refused += g.Refused
	f.Dropped += g.Dropped
	f.Say("%s", g.First)
}

// Say stores a description of the first fault.
func (f *Faults) Say(format string, args ...any) {
	if f.First == "" {
		f.First = fmt.Sprintf(format, args...)
	}
}

// String formats the faults in one line.
func (f Faults) String() string {
	return fmt.Sprintf("%d wrong, %d missing, %d doubled, %d refused, %d dropped: %s", f.Wrong, f.Gap, f.Double, f.Refused, f.Dropped, f.First)
}

// A Check checks the messages of one session and direction, in order.
type Check struct {
	Kind    Kind
	Session uint32
	Faults  *Faults

	// Taken is how many messages have arrived, which is the number of the newest.
	Taken uint64
	// Clock is when the newest message was sent.
	Clock int64

	head    [2 * headSize]byte
	at      int // bytes of the current message so far
	number  uint64
	pattern []byte
	bad     string
}

// Begin starts a message.
func (c *Check) Begin(text bool) {
	c.at, c.bad, c.pattern = 0, "", nil
	if text != c.Kind.Text {
		c.bad = "its type"
	}
}

// Payload checks the next bytes of the message.
func (c *Check) Payload(b []byte) {
	size := c.Kind.MinSize()
	if c.at < size {
		n := copy(c.head[c.at:size], b)
		c.at += n
		b = b[n:]
		if c.at < size {
			return
		}
		c.readHead()
	}
	if len(b) == 0 {
		return
	}
	from := c.at - size
	c.at += len(b)
	if c.at > c.Kind.Size {
		c.spoil("its size")
		return
	}
	if !bytes.Equal(b, c.pattern[from:from+len(b)]) {
		c.spoil("its bytes")
	}
}

func (c *Check) spoil(what string) {
	if c.bad == "" {
		c.bad = what
	}
}

func (c *Check) readHead() {
	head := c.head[:headSize]
	if c.Kind.Text {
		var plain [headSize]byte
		if _, err := hex.Decode(plain[:], c.head[:]); err != nil {
			c.spoil("its head")
		}
		head = plain[:]
	}
	c.Clock = int64(binary.BigEndian.Uint64(head))
	c.number = binary.BigEndian.Uint64(head[12:])
	if got := binary.BigEndian.Uint32(head[8:]); got != c.Session {
		c.spoil("its session")
	}
	if c.number > maxNumber {
		c.spoil("its number")
	}
	c.pattern = c.Kind.pattern(c.Session, c.number)
}

// End ends the message and reports whether it is the expected one.
func (c *Check) End() bool {
	if c.at != c.Kind.Size {
		c.spoil("its size")
	}
	if c.bad != "" {
		c.Faults.Wrong++
		c.Faults.Say("session %d: message %d is not the one sent in %s", c.Session, c.Taken+1, c.bad)
		c.Taken++
		return false
	}
	want := c.Taken + 1
	switch {
	case c.number < want:
		c.Faults.Double++
		c.Faults.Say("session %d: message %d came again, %d was due", c.Session, c.number, want)
		return false
	case c.number > want:
		c.Faults.Gap += int(c.number - want)
		c.Faults.Say("session %d: message %d came, %d was due", c.Session, c.number, want)
	}
	c.Taken = c.number
	return c.number == want
}
