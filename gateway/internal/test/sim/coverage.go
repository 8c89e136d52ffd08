package sim

import (
	"fmt"
	"strings"
)

// An Interleaving is an order of events that a resume protocol easily gets wrong. The
// simulation must encounter each of them.
type Interleaving int

// The interleavings. Several outcomes or moments of one are counted separately.
const (
	R1          Interleaving = iota // two resumes of one generation at once
	R2Resume                        // a resume races with the end of the grace period: the resume is first,
	R2Expiry                        // or the end is
	R3                              // the old connection's read error arrives late
	R4                              // the old connection's message is read after the new hello stated a count
	R5                              // the old connection's ack is read after the new hello
	R6                              // an upstream message arrives during the replay
	R7                              // disconnected during the replay, twice in a row
	R8                              // a write succeeded, and its bytes never arrive
	R9                              // disconnected within a frame
	R10Grace                        // the upstream closes while the session is detached,
	R10Accepted                     // after a resume and before the first replayed byte,
	R10Replay                       // or during the replay
	R11                             // an operator ends the session while a resume is in flight
	R12                             // the hello is lost after its generation was issued
	R13Ack                          // an ack ends an overflow
	R13Resume                       // a resume ends an overflow
	R14                             // an ack arrives before the write that it answers was reported
	R15                             // superseded twice while the first connection's write is in flight
	R16                             // a client does not read its replay, and meanwhile a resume of another session is served,
	R16Own                          // or one of the same session
	R17                             // the upstream sends before the client's 101
	R18                             // a token is renewed during its session
	R20                             // the gateway drains between reading a client's message and forwarding it
	R22                             // bye crosses the upstream's Close
	R19                             // a heartbeat that the gateway has answered also reaches the client,
	R19Again                        // or is answered by the gateway in a second absence
	R23                             // a client suspects its connection, which then shows activity: the resume is abandoned,
	R23After                        // or has its 101 and continues
	R24                             // it suspects one connection while another takes over,
	R25                             // or while the upstream is dialed, hard
	R26                             // an answer is overdue, and the socket is still draining
	R21Longer                       // the grace period is extended at the moment when it ends,
	R21Shorter                      // shortened, so that it is over,
	R21Late                         // or changed just after the end
	Exhausted                       // the memory for all replay buffers was exhausted
	Refused4400                     // a resume was refused with 4400,
	Refused4401
	Refused4404
	Refused4408
	Refused4410
	Refused4429
	Overtaken // or had to sign again

	// The edges of the state table in session/transitions.go.
	EdgeFirst         // connecting, first attach
	EdgeAhead         // connecting, pre-created
	EdgeDrop          // attached, drop
	EdgeDropHard      // the same, hard
	EdgeDropEnds      // the same, with a grace period of zero
	EdgeTakeover      // attached, valid resume
	EdgeTakeoverHard  // the same, hard: no dial
	EdgeResume        // detached, valid resume
	EdgeResumeAhead   // the same, by the first client of a pre-created session
	EdgeAwait         // detached, valid resume, hard
	EdgeUpstream      // connecting, upstream connected again
	EdgeResumeHard    // and its client is attached
	EdgeForgoFailed   // connecting, dial failed
	EdgeForgoLeft     // or no client waits any more
	EdgeForgoAfter    // or none waits when it succeeds
	EdgeGrace         // detached, grace over
	EdgeGraceHard     // the same, without an upstream
	EdgeGraceAhead    // the same, and no client has ever attached
	EdgeGraceRested   // the same, after a dial during which the timer was stopped
	EdgeOverFirst     // connecting for the first time, upstream closed or disconnected
	EdgeOverDialled   // connecting, the next upstream closed or disconnected
	EdgeEndFirst      // connecting for the first time, end
	EdgeEndDial       // connecting, end during the dial
	EdgeEndDialled    // connecting, end when the next upstream is connected
	EdgeEndDetached   // detached, end
	EdgeEndAttached   // attached, end
	EdgeIdleAttached  // attached, idle
	EdgeIdleDetached  // detached, idle
	EdgeIdleDial      // connecting, idle during the dial
	EdgeNoUpstream    // detached, valid resume whose upstream was replaced while the token was signed
	OldRead           // of a replaced upstream: a read,
	OldWrite          // the report of a write of session data,
	OldLast           // of the final frames,
	OldGone           // the disconnect,
	OldDeaf           // a write error
	ReplacedWriting   // replaced while its write is in flight,
	ReplacedBehind    // while an older one's write is,
	ReconnectWriting  // and the next one is connected
	Torn              // within a message, which goes to the next one in full,
	TornAgain         // and that is disconnected within it again
	Forgotten         // a message that the old upstream had not completed
	DialTaken         // a resume during the dial replaces the waiting one,
	DialKept          // is refused because it turns out to be older,
	DialQueued        // or waits until that is attached, or not
	DialUnneeded      // the dial ends, and the session has an upstream
	TermsAway         // terms changed while detached,
	TermsDial         // during the dial,
	TermsAnnounced    // while attached, by grace
	TermsRefused      // or not changed, since the token expires earlier
	TermsOverflow     // a changed policy ends an overflow
	Marked            // marked as started
	BeatSent          // a text sent while detached,
	BeatsTogether     // two at once,
	BeatHeld          // or held back
	ReplyAway         // a heartbeat answered and not numbered,
	ReplySplit        // after a part of it had arrived,
	ReplyCut          // or the client was disconnected within it,
	ReplyPieces       // or it arrived in several frames
	ReplyKept         // or was numbered, and not acked
	Paced             // a client was rate limited
	Asked             // the client was pinged
	KeptMissed        // a plain client resumes by its cookie: it missed something,
	KeptTwice         // it receives something again, because no Pong has covered it,
	KeptNothing       // it receives nothing again,
	KeptTakeover      // or its old connection was open, and did not answer
	SecondTab         // the old connection did answer, and the new client gets its own session
	PongLate          // a Pong arrives on a connection that is no longer attached
	PongOlder         // or answers a Ping that was not the newest
	Drained           // a client that sends nothing for longer than the heartbeat accepts bytes, which counts as activity
	Unanswered        // a client is detached because it owes an answer,
	UnansweredProxy   // although a proxy acknowledges bytes for it
	Silenced          // a client considers its connection dead, because it is owed an answer
	Returned          // what was in flight on a silent line arrives after all
	SuspectTakesOver  // a resume that a client started on suspicion takes over its connection
	CloseUnanswered   // a plain client's Close is forwarded and not answered in time,
	CloseAnswered     // or answered with a code of the upstream's own
	CloseAnsweredUp   // the upstream's is answered by a plain client with another code
	OutageBroke       // --upstream-lost redial: the upstream broke,
	OutageClosed      // or closed with 1001 or 1012,
	OutageSilent      // or was silent for too long
	OutageNone        // or ended in another way, and is not replaced
	OutageSameTime    // an upstream ended soon after an outage, and gets the rest of the time,
	OutageNewTime     // or later, and the time begins anew,
	OutageNoTime      // or there is no time left
	OutageFirst       // an outage begins before the first client is attached,
	OutageAhead       // before the first client of a pre-created session,
	OutageAway        // while detached,
	OutageDialled     // during a hard resume,
	OutageSlow        // while the client has not been sent everything before,
	OutageForgotten   // within a message of the upstream,
	OutageWriting     // while a write to the upstream is in flight
	OutageAttach      // a client attaches during an outage,
	OutageMissed      // or after one that it may have heard of
	OutageWindow      // the client's window is full during an outage
	Clogged           // the answer to a ping measures no round trip
	SilentUnmeasured  // a client is silent before its round trip is known
	CutPart           // a write stops inside a part of a message
	ReleasedParts     // a connection is released inside a message that comes in parts
	Parted            // a message comes in parts
	OutagePaced       // or more waits than its rate allows
	OutageDialFails   // a dial fails, and is repeated,
	OutageRefused     // or is refused for good,
	OutageRefusedAway // the same, while no client is attached
	OutageOver        // the time is over,
	OutageOverAway    // the same, while no client is attached
	OutageBack        // or the next upstream is there,
	OutageBackAway    // while detached,
	OutageBackSlow    // or before the client has been sent everything from before
	OutageMerged      // two outages without a message between them are one for the client
	OutageHardDrop    // a detach ends an outage, hard
	OutageBye         // the client says bye during an outage,
	OutageEnds        // or the session ends in another way
	ClaimDead         // a durable session is claimed, since its node is dead,
	ClaimAlive        // or seems to be,
	ClaimAttached     // while a client is attached there,
	ClaimUnheard      // or no client was heard there since it was claimed itself,
	ClaimLeaving      // or it is being handed over
	ClaimAbandoned    // for an attempt that the client has given up,
	ClaimBehind       // or that states less than the client has now
	FurtherDown       // a client has got further elsewhere than the claim says: the upstream is replaced,
	FurtherUp         // though only its own messages were settled,
	FurtherAttached   // while an older attempt of it is attached,
	FurtherDialled    // or has dialled
	FurtherOver       // or the upstream has ended the session already
	HelloOutdated     // a client does not take a hello, since its older connection has brought something,
	OutdatedAgain     // again, and gives that up
	HelloOlder        // it takes a hello of a former owner's
	UpTwice           // a message is written by two owners
	CountedRepeat     // and a game server that counts skips it
	Repeated          // the client sends a message again that waits for the upstream
	Mistold           // an upstream was told a count that does not hold any more,
	MistoldOutage     // the same in an outage
	FenceAttached     // a former owner is fenced: a client is attached,
	FenceAlone        // it has no upstream,
	FenceWriting      // a write is in flight,
	FenceTorn         // a message is written in part
	FenceDial         // it learns of it when it dials,
	FenceAsked        // or asks
	AskedInVain       // a node asks whose the session is, and gets no answer,
	EndInTime         // or an answer for which the end has waited
	SilentEnd         // a session ends without a word,
	SilentEndOlder    // at a former owner
	BeatUncertain     // a text is due while detached, and is not sent
	HandOffAttached   // a session is handed over, with a client,
	HandOffAway       // or without one,
	HandOffQueue      // with messages of the client that wait,
	HandOffOutage     // in an outage,
	HandOffAlone      // without an upstream,
	HandOffFull       // while the upstream waits for room,
	HandOffWriting    // or a write to it is in flight
	HandOffAnswered   // the upstream answers the Close,
	HandOffBroken     // breaks,
	HandOffLate       // does not answer,
	HandOffTorn       // within a message,
	HandOffEnded      // or ends the session itself
	HandOffFailed     // nobody takes the session,
	HandOffCalledOff  // the hand-off is called off before,
	HandOffUnheard    // or its answer is lost
	HandOffUnaccepted // a claim whose hello nobody has taken is not handed over
	ResumeInHandOff   // a client resumes meanwhile
	FutileDraining    // a connection does not count for `no progress`, because it was still draining
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
	Exhausted:        "store exhausted",
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
	EdgeForgoLeft:    "edge connecting-detached, no client waits",
	EdgeForgoAfter:   "edge connecting-detached, no client waits for the new one",
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
	ReplacedWriting:  "replaced while writing",
	ReplacedBehind:   "replaced during a write to an older one",
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
	TermsAnnounced:   "terms announced",
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
	OutageBroke:      "outage, broken",
	OutageClosed:     "outage, gone away",
	OutageSilent:     "outage, silent",
	OutageNone:       "lost without an outage",
	OutageSameTime:   "outage, rest of the time",
	OutageNewTime:    "outage, new time",
	OutageNoTime:     "outage, no time left",
	OutageFirst:      "outage before the first attach",
	OutageAhead:      "outage, made ahead",
	OutageAway:       "outage while away",
	OutageDialled:    "outage in a hard resume",
	OutageSlow:       "outage of a slow client",
	OutageForgotten:  "outage within a message",
	OutageWriting:    "outage while writing",
	OutageAttach:     "attach in an outage",
	OutageMissed:     "attach after an outage",
	OutageWindow:     "outage, window full",
	Clogged:          "clogged line", SilentUnmeasured: "silent before the round trip is known", CutPart: "write stops inside a part", ReleasedParts: "released between two parts", Parted: "message in parts",
	OutagePaced:       "outage, paced",
	OutageDialFails:   "outage, dial fails",
	OutageRefused:     "outage, dial refused",
	OutageRefusedAway: "outage, dial refused while away",
	OutageOver:        "outage, time over",
	OutageOverAway:    "outage, time over while away",
	OutageBack:        "outage, back",
	OutageBackAway:    "outage, back while away",
	OutageBackSlow:    "outage, back for a slow client",
	OutageMerged:      "outages merged",
	OutageHardDrop:    "outage, hard detach",
	OutageBye:         "outage, bye",
	OutageEnds:        "outage, end",
	ClaimDead:         "claim, node dead",
	ClaimAlive:        "claim, node alive",
	ClaimAttached:     "claim, client attached",
	ClaimUnheard:      "claim of a claim",
	ClaimLeaving:      "claim in a hand-off",
	ClaimAbandoned:    "claim for nobody",
	ClaimBehind:       "claim behind the client",
	FurtherDown:       "got further",
	FurtherUp:         "got further, up alone",
	FurtherAttached:   "got further, attached",
	FurtherDialled:    "got further, dialled",
	FurtherOver:       "got further, upstream over",
	HelloOutdated:     "hello outdated",
	OutdatedAgain:     "hello outdated again",
	HelloOlder:        "hello of an older owner",
	UpTwice:           "written by two owners",
	CountedRepeat:     "repeat skipped by the game",
	Repeated:          "repeat dropped",
	Mistold:           "upstream mistold",
	MistoldOutage:     "upstream mistold, outage",
	FenceAttached:     "fenced with a client",
	FenceAlone:        "fenced without an upstream",
	FenceWriting:      "fenced while writing",
	FenceTorn:         "fenced within a message",
	FenceDial:         "fenced by its dial",
	FenceAsked:        "fenced by its question",
	AskedInVain:       "asked in vain",
	EndInTime:         "end after an answer",
	SilentEnd:         "silent end",
	SilentEndOlder:    "silent end of an older owner",
	BeatUncertain:     "beat not sent, uncertain",
	HandOffAttached:   "hand-off, attached",
	HandOffAway:       "hand-off, away",
	HandOffQueue:      "hand-off of waiting messages",
	HandOffOutage:     "hand-off in an outage",
	HandOffAlone:      "hand-off without an upstream",
	HandOffFull:       "hand-off of a full buffer",
	HandOffWriting:    "hand-off while writing",
	HandOffAnswered:   "hand-off, close answered",
	HandOffBroken:     "hand-off, upstream breaks",
	HandOffLate:       "hand-off, close not answered",
	HandOffTorn:       "hand-off within a message",
	HandOffEnded:      "hand-off, session ended",
	HandOffFailed:     "hand-off, nobody takes it",
	HandOffCalledOff:  "hand-off called off",
	HandOffUnheard:    "hand-off, answer lost",
	HandOffUnaccepted: "no hand-off of an unaccepted claim",
	ResumeInHandOff:   "resume in a hand-off",
	FutileDraining:    "still draining, not futile",
}

func (r Interleaving) String() string { return interleavingNames[r] }

// enoughSeeds must encounter all of them.
const enoughSeeds = 600

// Coverage counts how often each interleaving was encountered, and how sessions ended.
type Coverage struct {
	Hits [interleavings]int
	Ends [len(reasons)]int
}

var reasons = [...]string{
	"bye", "grace_over", "upstream_closed", "upstream_lost", "no_progress", "client_gone", "ended", "draining",
	"superseded", "idle_timeout", "too_fast", "window_exceeded", "internal_error", "protocol_error", "protocol_violation", "message_too_big", "invalid_utf8", "moved",
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

// Add adds the coverage of another run.
func (c *Coverage) Add(o Coverage) {
	for i, n := range o.Hits {
		c.Hits[i] += n
	}
	for i, n := range o.Ends {
		c.Ends[i] += n
	}
}

// Missing lists what was never encountered.
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
