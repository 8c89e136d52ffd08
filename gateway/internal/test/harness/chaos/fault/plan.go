// Package fault is a TCP proxy that breaks connections according to a plan: at a byte
// of either direction, in the ways in which networks fail. Of WebSocket it knows only
// the request line, by which it tells connections apart.
package fault

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Kind is a kind of fault.
type Kind int

// The kinds. Near is the side that dialled the proxy, far the one it dials.
const (
	None         Kind = iota
	Reset             // both sides get an RST
	FinToFar          // the far side gets an end of stream; the other direction works for a while
	FinToNear         // the same with the sides swapped
	DeafFar           // the near side gets an RST, the far side receives nothing for a while
	DeafNear          // the far side gets an RST, the near side receives nothing for a while
	Silence           // neither receives anything for a while, and what they write is swallowed
	SilentToFar       // only the far side receives nothing
	SilentToNear      // only the near side receives nothing
	SilenceEnds       // nothing passes for a while, and then everything arrives; some time later both sides get an RST
	Stall             // nothing passes for a while, and then everything does: no disconnect
	EarlyReset        // Reset during the handshake
	EarlyDeaf         // DeafFar during the handshake
	Kinds
)

var names = [Kinds]string{"none", "reset", "half-close to the far side", "half-close to the near side", "far side left half-open",
	"near side left half-open", "silence", "silence towards the far side", "silence towards the near side", "silence that ends", "stall", "reset in the handshake", "half-open in the handshake"}

func (k Kind) String() string { return names[k] }

// Cut reports whether the fault ends the connection.
func (k Kind) Cut() bool { return k != None && k != Stall }

// Silent reports whether one side, or both, receive nothing more after it: no byte, no end and no error.
func (k Kind) Silent() bool {
	switch k {
	case Silence, SilentToFar, SilentToNear, SilenceEnds, DeafFar, DeafNear, EarlyDeaf:
		return true
	}
	return false
}

// A Plan is the fault of one connection, and the quality of its line before that.
type Plan struct {
	Kind  Kind
	Up    bool          // count the bytes to the far side, else those to the near side
	After int           // how many of them pass first
	Hold  time.Duration // duration of temporary effects
	Rate  int           // bytes per second in each direction; 0: unlimited
	Chop  int           // max bytes per write; 0: unlimited
	Late  time.Duration // delay of the first bytes in each direction
}

// Short describes the plan briefly, for the story of a failure.
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

// handshakeBytes is about the length of an opening handshake.
const handshakeBytes = 1200

// Cutting draws a plan with a disconnect from r. Slow kinds of disconnects are rarer.
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

// Calm draws a plan under which the connection survives: it may be slow, and stall
// once.
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
