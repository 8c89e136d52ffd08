// Package fault is a TCP proxy that breaks connections as a plan says: at a byte
// of either direction, in the ways in which networks break them. It knows nothing
// of WebSocket but the request line, by which it tells connections apart.
package fault

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Kind is what befalls a connection.
type Kind int

// The kinds. Near is the side that dialled the proxy, far the one it dials.
const (
	None         Kind = iota
	Reset             // both sides get a RST
	FinToFar          // the far side gets an end of stream; the other way goes on for a while
	FinToNear         // the same for the near side
	DeafFar           // the near side gets a RST, the far side hears nothing more for a while
	DeafNear          // the far side gets a RST, the near side hears nothing more for a while
	Silence           // neither hears anything more for a while, and what they write is swallowed
	SilentToFar       // only the far side hears nothing more
	SilentToNear      // only the near side hears nothing more
	SilenceEnds       // nothing passes for a while, and then all of it arrives; some time later both sides get a RST
	Stall             // nothing passes for a while, and then goes on: no cut
	EarlyReset        // Reset within the handshake
	EarlyDeaf         // DeafFar within the handshake
	Kinds
)

var names = [Kinds]string{"none", "reset", "half-close to the far side", "half-close to the near side", "far side left half-open",
	"near side left half-open", "silence", "silence towards the far side", "silence towards the near side", "silence that ends", "stall", "reset in the handshake", "half-open in the handshake"}

func (k Kind) String() string { return names[k] }

// Cut reports whether the connection is over after it.
func (k Kind) Cut() bool { return k != None && k != Stall }

// Silent reports whether the far side hears nothing more after it, and the near side:
// no byte, no end and no error.
func (k Kind) Silent() (far, near bool) {
	switch k {
	case Silence, SilenceEnds:
		return true, true
	case SilentToFar, DeafFar, EarlyDeaf:
		return true, false
	case SilentToNear, DeafNear:
		return false, true
	}
	return false, false
}

// A Plan is what befalls one connection, and how good its line is before that.
type Plan struct {
	Kind  Kind
	Up    bool          // the bytes towards the far side are counted, or those towards the near side
	After int           // how many of them pass first
	Hold  time.Duration // for what lasts a while
	Rate  int           // bytes a second each way; 0: as fast as they come
	Chop  int           // most bytes written at once; 0: any number
	Late  time.Duration // that the first bytes each way take
}

// Short says it in a few words, for the story of a failure.
func (p Plan) Short() string {
	if p.Kind == None {
		return "no fault"
	}
	way := "down"
	if p.Up {
		way = "up"
	}
	return fmt.Sprintf("%s after %d bytes %s", p.Kind, p.After, way)
}

// handshakeBytes is about how long an opening handshake is.
const handshakeBytes = 1200

// Cutting is a plan that cuts a connection, drawn from r. The longer ways to be
// cut are the rarer ones.
func Cutting(r *rand.Rand, hold time.Duration) Plan {
	kinds := []Kind{Reset, Reset, Reset, Reset, FinToFar, FinToNear, DeafFar, DeafFar, DeafNear, Silence, Silence, SilentToFar, SilentToNear, SilenceEnds, EarlyReset, EarlyDeaf}
	p := line(r)
	p.Kind, p.Up, p.Hold = kinds[r.IntN(len(kinds))], r.IntN(2) == 0, hold
	switch {
	case p.Kind == EarlyReset || p.Kind == EarlyDeaf:
		p.After = r.IntN(handshakeBytes)
	default:
		p.After = handshakeBytes + r.IntN(1<<(9+r.IntN(8)))
	}
	return p
}

// Calm is a plan under which the connection lives: it may be slow, and stall once.
func Calm(r *rand.Rand) Plan {
	p := line(r)
	if r.IntN(3) == 0 {
		p.Kind, p.Up, p.After = Stall, r.IntN(2) == 0, handshakeBytes+r.IntN(32<<10)
		p.Hold = time.Duration(50+r.IntN(700)) * time.Millisecond
	}
	return p
}

// line draws the quality of a line.
func line(r *rand.Rand) (p Plan) {
	switch r.IntN(12) {
	case 0:
		p.Rate = 64<<10 + r.IntN(256<<10)
	case 1:
		p.Chop = 1 + r.IntN(7)
	case 2:
		p.Chop = 1 + r.IntN(1400)
	case 3, 4:
		p.Late = time.Duration(r.IntN(400)) * time.Millisecond
	}
	return p
}
