package sim

import (
	"fmt"
	"slices"
	"strings"
)

// interleavings are orders of events that a resume protocol easily gets wrong, the edges of the state table in
// session/transitions.go, and other states that the simulation must reach. R1 to R33 are those of README.md.
var interleavings = strings.Split(strings.Join(strings.Fields(`
	R1; R2 resume first; R2 expiry first; R3; R4; R5; R6; R7; R8; R9; R10 in grace;
	R10 before the first replayed byte; R10 in mid-replay; R11; R12; R13 ack; R13 resume; R14; R15;
	R16 another session; R16 its own session; R17; R18; R20; R22; R19 client too; R19 gateway again;
	R23 before the 101; R23 after the 101; R24; R25; R26; R21 longer; R21 shorter; R21 late; store exhausted;
	refused 4400; refused 4401; refused 4404; refused 4408; refused 4410; refused 4429; overtaken;
	edge connecting-attached; edge connecting-detached; edge connecting-ended; edge attached-attached;
	edge attached-detached; edge attached-ended; edge detached-attached; edge detached-ended;
	edge connecting-attached, hard; edge connecting-detached, hard; edge connecting-ended, hard;
	edge attached-attached, hard; edge attached-detached, hard; edge attached-ended, hard;
	edge detached-connecting; edge detached-connecting, hard; edge detached-attached, hard; edge detached-ended, hard; grace over after a dial;
	upstream over before the first attach; next upstream over before the attach; old read; old write; old last words; old end; old write error;
	replaced while writing; replaced during a write to an older one; next one while writing; torn; torn again;
	forgotten; dial taken over; dial kept from an older one; dial queued for; dial unneeded; terms away;
	terms in the dial; terms announced; terms refused; terms end an overflow; started; beat; beats together;
	beat held back; heartbeat answered; heartbeat split; heartbeat cut by the drop; heartbeat in pieces;
	heartbeat kept; paced; asked; back by cookie, missed something; back by cookie, something twice;
	back by cookie, missed nothing; back by cookie, no answer; second tab; pong late; pong to an older ping;
	drained slowly; answer overdue; answer overdue behind a proxy; silent line returns;
	plain close not answered; plain close answered;
	upstream's close answered by a plain client; outage, broken; outage, gone away; outage, silent;
	lost without an outage; outage, rest of the time; outage, new time; outage, no time left;
	outage before the first attach; outage, made ahead; outage while away; outage in a hard resume;
	outage of a slow client; outage within a message; outage while writing; attach in an outage;
	attach after an outage; outage, window full; outage, paced; outage, dial fails; outage, dial refused;
	outage, dial refused while away; outage, time over; outage, time over while away; outage, back;
	outage, back while away; outage, back for a slow client; outages merged; outage, hard detach; outage, bye;
	outage, end; claim, node dead; claim, node alive; claim, client attached; claim of a claim;
	claim in a hand-off; claim for nobody; claim behind the client; got further; got further, up alone;
	got further, attached; got further, dialled; got further, upstream over; hello outdated; hello outdated again;
	hello of an older owner; written by two owners; repeat skipped by the game; repeat dropped; upstream mistold;
	upstream mistold, outage; fenced with a client; fenced without an upstream; fenced while writing;
	fenced within a message; fenced by its dial; fenced by its question; asked in vain; end after an answer;
	silent end; silent end of an older owner; beat not sent, uncertain; hand-off, attached; hand-off, away;
	hand-off of waiting messages; hand-off in an outage; hand-off without an upstream; hand-off of a full buffer;
	hand-off while writing; hand-off, close answered; hand-off, upstream breaks; hand-off, close not answered;
	hand-off within a message; hand-off, session ended; hand-off, nobody takes it; hand-off called off;
	hand-off, answer lost; no hand-off of an unaccepted claim; resume in a hand-off; still draining, not futile;
	silent before its round trip is known; a pong on a clogged line; cut inside a part; message in parts;
	released inside a message in parts; message gone on with; client's message gone on with; skip; skip while attached
`), " "), "; ")

// reasons are those for which a session may end.
var reasons = strings.Fields(`bye grace_over upstream_closed upstream_lost no_progress client_gone ended draining superseded idle_timeout
	too_fast window_exceeded internal_error protocol_error protocol_violation message_too_big invalid_utf8 moved`)

// enoughSeeds must encounter all of them.
const enoughSeeds = 600

// Coverage counts how often each interleaving was encountered, and each end.
type Coverage map[string]int

// wanted are the names of all counters.
var wanted = func() (list []string) {
	list = slices.Clone(interleavings)
	for _, reason := range reasons {
		list = append(list, "end with "+reason)
	}
	slices.Sort(list)
	return list
}()

// hit counts a counter.
func (c Coverage) hit(name string) {
	if _, ok := slices.BinarySearch(wanted, name); !ok {
		panic(fmt.Sprintf("no counter is called %q", name))
	}
	c[name]++
}

// Add adds the coverage of another run.
func (c Coverage) Add(o Coverage) {
	for name, n := range o {
		c[name] += n
	}
}

// Missing lists what was never encountered.
func (c Coverage) Missing() []string {
	return slices.DeleteFunc(slices.Clone(wanted), func(name string) bool { return c[name] > 0 })
}

func (c Coverage) String() string {
	var b strings.Builder
	for _, name := range wanted {
		fmt.Fprintf(&b, "%s: %d\n", name, c[name])
	}
	return b.String()
}
