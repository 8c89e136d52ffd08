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
	R16                             // a client does not take its replay, and meanwhile another session's resume is served,
	R16Own                          // or one of its own session
	R17                             // the upstream speaks before the client's 101
	R18                             // a token is renewed while its session lives
	R20                             // the gateway drains between reading a client's message and handing it over
	R22                             // bye crosses the upstream's Close
	R19                             // a heartbeat that the gateway has answered reaches the client, too,
	R19Again                        // or is answered by the gateway in a second absence
	R23                             // a client suspects its connection, which then speaks: the resume is dropped,
	R23After                        // or has its 101 and goes on
	R24                             // it suspects while another of its connections takes over,
	R25                             // or while the upstream is dialled, hard
	R26                             // an answer is overdue, and the socket still drains
	R21Longer                       // made longer in the instant in which it ends,
	R21Shorter                      // made shorter, so that it is over,
	R21Late                         // or changed just after the end
	Spent                           // the memory for all replay buffers was spent: not one of the list, but no less tricky
	Refused4400                     // a resume was refused with 4400,
	Refused4401
	Refused4404
	Refused4408
	Refused4410
	Refused4429
	Overtaken // or had to be signed again

	// The edges of the state table in session/transitions.go.
	EdgeFirst        // connecting, first attach
	EdgeAhead        // connecting, made ahead of its client
	EdgeDrop         // attached, drop
	EdgeDropHard     // the same, hard
	EdgeDropEnds     // the same, with a grace period of zero
	EdgeTakeover     // attached, good resume
	EdgeTakeoverHard // the same, hard: no dial
	EdgeResume       // detached, good resume
	EdgeResumeAhead  // the same, by the client that it was made ahead of
	EdgeAwait        // detached, good resume, hard
	EdgeUpstream     // connecting, upstream there again
	EdgeResumeHard   // and its client is attached
	EdgeForgoFailed  // connecting, upstream not there
	EdgeForgoLeft    // or nobody waits for it any more
	EdgeForgoAfter   // or nobody does when it has come
	EdgeGrace        // detached, grace over
	EdgeGraceHard    // the same, without an upstream
	EdgeGraceAhead   // the same, and the client has never come
	EdgeGraceRested  // the same, after a dial in which the timer has rested
	EdgeOverFirst    // connecting for the first time, upstream closed or lost
	EdgeOverDialled  // connecting, the next upstream closed or lost
	EdgeEndFirst     // connecting for the first time, end
	EdgeEndDial      // connecting, end during the dial
	EdgeEndDialled   // connecting, end when the next upstream is there
	EdgeEndDetached  // detached, end
	EdgeEndAttached  // attached, end
	EdgeIdleAttached // attached, idle
	EdgeIdleDetached // detached, idle
	EdgeIdleDial     // connecting, idle during the dial
	EdgeNoUpstream   // detached, good resume whose upstream was parted from while it was signed
	OldRead          // of an old upstream: a read,
	OldWrite         // the report of a write of what is the session's,
	OldLast          // of the last words,
	OldGone          // the end,
	OldDeaf          // a write error
	PartedWriting    // parted from while its write is under way,
	PartedBehind     // while an older one's write is,
	ReconnectWriting // and the next one comes
	Torn             // in the midst of a message, which goes to the next one whole,
	TornAgain        // and that is torn again
	Forgotten        // a message that the old upstream had not finished
	DialTaken        // a resume during the dial takes the waiting one's place,
	DialKept         // is turned away where it came earlier after all,
	DialQueued       // or waits until that is attached, or not
	DialUnneeded     // the dial ends, and the session has an upstream
	TermsAway        // terms changed while away,
	TermsDial        // during the dial,
	TermsTold        // while attached, by grace
	TermsRefused     // or not changed, since the token expires before
	TermsOverflow    // a changed policy ends an overflow
	Marked           // marked as started
	BeatSent         // something said while away,
	BeatsTogether    // two at once,
	BeatHeld         // or held back
	ReplyAway        // a heartbeat answered and not numbered,
	ReplySplit       // after a part of it had come,
	ReplyCut         // or the client was lost in its midst,
	ReplyPieces      // or it came in several frames
	ReplyKept        // or had been numbered, and not acked
	Paced            // a client held to its rate
	Asked            // the client was asked for a sign of life
	KeptMissed       // a plain client is back by its cookie: something was missed,
	KeptTwice        // something that it has comes again, since no Pong has covered it,
	KeptNothing      // nothing does,
	KeptTakeover     // or its connection was there, and did not answer
	SecondTab        // it did answer, and the newcomer gets a session of its own
	PongLate         // a Pong is read of a connection that is not attached any more
	PongOlder        // or is the answer to a Ping that was not the newest
	Drained          // a client that says nothing for longer than the heartbeat takes bytes, which counts as heard
	Unanswered       // a client is detached since it owes an answer,
	UnansweredProxy  // though something in between acknowledges bytes for it
	Silenced         // a client finds its connection dead, since it is owed an answer
	Returned         // what was under way on a silent line arrives after all
	SuspectTakesOver // a resume that a client began on suspicion takes its connection over
	CloseUnanswered  // a plain client's Close is passed on and not answered in time,
	CloseAnswered    // or answered with a code of the upstream's own
	CloseAnsweredUp  // the upstream's is answered by a plain client with a code of its own
	FutileDraining   // a connection does not count for `no progress`, since it was still draining
	interleavings
)

var interleavingNames = [interleavings]string{
	R1:               "R1",
	R2Resume:         "R2 resume first",
	R2Expiry:         "R2 expiry first",
	R3:               "R3",
	R4:               "R4",
	R5:               "R5",
	R6:               "R6",
	R7:               "R7",
	R8:               "R8",
	R9:               "R9",
	R10Grace:         "R10 in grace",
	R10Accepted:      "R10 before the first replayed byte",
	R10Replay:        "R10 in mid-replay",
	R11:              "R11",
	R12:              "R12",
	R13Ack:           "R13 ack",
	R13Resume:        "R13 resume",
	R14:              "R14",
	R15:              "R15",
	R16:              "R16 another session",
	R16Own:           "R16 its own session",
	R17:              "R17",
	R18:              "R18",
	R20:              "R20",
	R22:              "R22",
	R19:              "R19 client too",
	R19Again:         "R19 gateway again",
	R23:              "R23 before the 101",
	R23After:         "R23 after the 101",
	R24:              "R24",
	R25:              "R25",
	R26:              "R26",
	R21Longer:        "R21 longer",
	R21Shorter:       "R21 shorter",
	R21Late:          "R21 late",
	Spent:            "store spent",
	Refused4400:      "refused 4400",
	Refused4401:      "refused 4401",
	Refused4404:      "refused 4404",
	Refused4408:      "refused 4408",
	Refused4410:      "refused 4410",
	Refused4429:      "refused 4429",
	Overtaken:        "overtaken",
	EdgeFirst:        "edge connecting-attached",
	EdgeAhead:        "edge connecting-detached, made ahead",
	EdgeDrop:         "edge attached-detached",
	EdgeDropHard:     "edge attached-detached, hard",
	EdgeDropEnds:     "edge attached-ended, no grace",
	EdgeTakeover:     "edge attached-attached",
	EdgeTakeoverHard: "edge attached-attached, hard",
	EdgeResume:       "edge detached-attached",
	EdgeResumeAhead:  "edge detached-attached, made ahead",
	EdgeAwait:        "edge detached-connecting",
	EdgeUpstream:     "edge connecting, upstream there",
	EdgeResumeHard:   "edge connecting-attached, hard",
	EdgeForgoFailed:  "edge connecting-detached, not there",
	EdgeForgoLeft:    "edge connecting-detached, nobody waits",
	EdgeForgoAfter:   "edge connecting-detached, nobody waits for the new one",
	EdgeGrace:        "edge detached-ended, grace over",
	EdgeGraceHard:    "edge detached-ended, grace over, hard",
	EdgeGraceAhead:   "edge detached-ended, grace over, made ahead",
	EdgeGraceRested:  "edge detached-ended, grace over, rested",
	EdgeOverFirst:    "edge connecting, upstream over",
	EdgeOverDialled:  "edge connecting, next upstream over",
	EdgeEndFirst:     "edge connecting-ended",
	EdgeEndDial:      "edge connecting-ended, dial",
	EdgeEndDialled:   "edge connecting-ended, dialled",
	EdgeEndDetached:  "edge detached-ended",
	EdgeEndAttached:  "edge attached-ended",
	EdgeIdleAttached: "edge attached-ended, idle",
	EdgeIdleDetached: "edge detached-ended, idle",
	EdgeIdleDial:     "edge connecting-ended, idle",
	EdgeNoUpstream:   "edge detached, no upstream at the last moment",
	OldRead:          "old read",
	OldWrite:         "old write",
	OldLast:          "old last words",
	OldGone:          "old end",
	OldDeaf:          "old write error",
	PartedWriting:    "parted while writing",
	PartedBehind:     "parted while an older one is written to",
	ReconnectWriting: "next one while writing",
	Torn:             "torn",
	TornAgain:        "torn again",
	Forgotten:        "forgotten",
	DialTaken:        "dial taken over",
	DialKept:         "dial kept from an older one",
	DialQueued:       "dial queued for",
	DialUnneeded:     "dial unneeded",
	TermsAway:        "terms away",
	TermsDial:        "terms in the dial",
	TermsTold:        "terms told",
	TermsRefused:     "terms refused",
	TermsOverflow:    "terms end an overflow",
	Marked:           "started",
	BeatSent:         "beat",
	BeatsTogether:    "beats together",
	BeatHeld:         "beat held back",
	ReplyAway:        "heartbeat answered",
	ReplySplit:       "heartbeat split",
	ReplyCut:         "heartbeat cut by the drop",
	ReplyPieces:      "heartbeat in pieces",
	ReplyKept:        "heartbeat kept",
	Paced:            "paced",
	Asked:            "asked",
	KeptMissed:       "back by cookie, missed something",
	KeptTwice:        "back by cookie, something twice",
	KeptNothing:      "back by cookie, missed nothing",
	KeptTakeover:     "back by cookie, no answer",
	SecondTab:        "second tab",
	PongLate:         "pong late",
	PongOlder:        "pong to an older ping",
	Drained:          "drained slowly",
	Unanswered:       "answer overdue",
	UnansweredProxy:  "answer overdue behind a proxy",
	Silenced:         "gateway silent",
	Returned:         "silent line returns",
	SuspectTakesOver: "suspicion takes over",
	CloseUnanswered:  "plain close not answered",
	CloseAnswered:    "plain close answered",
	CloseAnsweredUp:  "upstream's close answered by a plain client",
	FutileDraining:   "still draining, not futile",
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
	"superseded", "idle_timeout", "too_fast", "window_exceeded", "internal_error", "protocol_error", "protocol_violation", "message_too_big", "invalid_utf8",
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
