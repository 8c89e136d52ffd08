package sim

import (
	"fmt"
	"strings"
)

// An Interleaving is one of the orders of events that a resume protocol gets
// wrong most easily. The simulation has to come across each of them.
type Interleaving int

// The interleavings. Where one has several outcomes or moments, each is
// counted by itself.
const (
	R1          Interleaving = iota // two resumes of one generation at once
	R2Resume                        // a resume in the instant in which the grace period ends: the resume is first,
	R2Expiry                        // or the end is
	R3                              // the old connection's read error comes late
	R4                              // the old connection's message is read after the new hello named a count
	R5                              // the old connection's ack is read after the new hello
	R6                              // an upstream message comes during the replay
	R7                              // cut in the midst of the replay, twice in a row
	R8                              // a write succeeded, and its bytes never arrive
	R9                              // cut in the midst of a frame
	R10Grace                        // the upstream closes while detached,
	R10Accepted                     // after a resume and before the first replayed byte,
	R10Replay                       // in the midst of the replay
	R11                             // an operator ends the session while a resume is under way
	R12                             // the hello is lost after its generation was issued
	R13Ack                          // an ack ends an overflow
	R13Resume                       // a resume ends an overflow
	R14                             // an ack comes before the write that it answers was reported
	R15                             // taken over twice while the first connection's write is in flight
	R17                             // the upstream speaks before the client's 101
	R18                             // a token is renewed while its session lives
	R20                             // the gateway drains between reading a client's message and handing it over
	R22                             // bye crosses the upstream's Close
	Spent                           // the memory for all replay buffers was spent: not one of the list, but no less tricky
	Refused4400                     // a resume was refused with 4400,
	Refused4401
	Refused4404
	Refused4408
	Refused4410
	Refused4429
	Overtaken // or had to be signed again
	interleavings
)

var interleavingNames = [interleavings]string{
	"R1", "R2 resume first", "R2 expiry first", "R3", "R4", "R5", "R6", "R7", "R8", "R9",
	"R10 in grace", "R10 before the first replayed byte", "R10 in mid-replay", "R11", "R12", "R13 ack", "R13 resume",
	"R14", "R15", "R17", "R18", "R20", "R22",
	"store spent", "refused 4400", "refused 4401", "refused 4404", "refused 4408", "refused 4410", "refused 4429", "overtaken",
}

// NotHere are the interleavings that the core cannot meet, and why.
var NotHere = map[string]string{
	"R16": "a slow peer while something shared is locked: the core has no lock; the drivers' tests have it",
	"R19": "a keepalive answered by gateway and client: the core answers none of the application's",
	"R21": "a grace period changed while it runs out: the core's is fixed when the session is made",
}

func (r Interleaving) String() string { return interleavingNames[r] }

// enoughSeeds have to meet everything.
const enoughSeeds = 600

// Coverage counts how often each interleaving was met, and how sessions ended.
type Coverage struct {
	Hits [interleavings]int
	Ends [len(reasons)]int
}

var reasons = [...]string{
	"bye", "grace_over", "upstream_closed", "upstream_lost", "no_progress", "client_gone", "ended", "draining",
	"window_exceeded", "internal_error", "protocol_error", "protocol_violation", "message_too_big", "invalid_utf8",
}

func (c *Coverage) hit(r Interleaving) { c.Hits[r]++ }

func (c *Coverage) refused(code int) {
	switch code {
	case 4400:
		c.hit(Refused4400)
	case 4401:
		c.hit(Refused4401)
	case 4404:
		c.hit(Refused4404)
	case 4408:
		c.hit(Refused4408)
	case 4410:
		c.hit(Refused4410)
	case 4429:
		c.hit(Refused4429)
	}
}

func (c *Coverage) ended(reason string) bool {
	for i, name := range reasons {
		if name == reason {
			c.Ends[i]++
			return true
		}
	}
	return false
}

// Add adds what another run has met.
func (c *Coverage) Add(o Coverage) {
	for i, n := range o.Hits {
		c.Hits[i] += n
	}
	for i, n := range o.Ends {
		c.Ends[i] += n
	}
}

// Missing lists what was never met.
func (c *Coverage) Missing() []string {
	var list []string
	for i, n := range c.Hits {
		if n == 0 {
			list = append(list, Interleaving(i).String())
		}
	}
	for i, n := range c.Ends {
		if n == 0 {
			list = append(list, "end with "+reasons[i])
		}
	}
	return list
}

func (c Coverage) String() string {
	var b strings.Builder
	for i, n := range c.Hits {
		fmt.Fprintf(&b, "%s: %d\n", Interleaving(i), n)
	}
	for i, n := range c.Ends {
		fmt.Fprintf(&b, "end with %s: %d\n", reasons[i], n)
	}
	return b.String()
}
