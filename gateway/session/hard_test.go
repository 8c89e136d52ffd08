package session_test

import (
	"testing"

	"reseat/gateway/session"
)

// --disconnect hard: a session outlives its upstream connections.

func TestUpstreamWithWriteInFlightIsClosedOnceWhenDialFails(t *testing.T) {
	for word, want := range map[string]string{"": "", "away": "away, "} {
		attached(t, hard, notices(session.Notices{Detach: word})).play(`client> one; game lends; drop
			2 times: begin; cancel // dials that fail
			game wrote all; game< one, %sClose 1001 disconnected; mode linger`, want)
	}
}

// A client that asks for an upstream while another one is attached waits for nothing; an
// upstream dialled for it must still be released.
func TestForgoReleasesUpstreamThatNoClientAwaits(t *testing.T) {
	b := attached(t, hard)
	b.play(`begin; attached // no effect: a client is attached
		drop; game< Close 1001 disconnected; connect; connecting; cancel; detached; game< Close 1001 disconnected`)
	if !b.s.NeedsUpstream() {
		t.Error("detached, and the upstream is there")
	}
	b.play(`30s; ended; free`)
}

// The write to the first upstream is still in flight when the second one has connected and
// been released again: the bytes in flight stay as they are, and count by what the first
// one took of them.
func TestQueueIsUntouchedWhileOlderUpstreamWritesIt(t *testing.T) {
	attached(t, hard, notices(session.Notices{Resume: "back"})).play(`client> one, two, three
		game takes 8; game lends // all but a byte of one is written, the rest is lent
		drop; dial; cancel; game< back, Close 1001 disconnected
		older wrote 10; older< one, two; counts 3 2 0 0
		dial; game< back, three`)
}

// The session ends while a write to the old upstream is in flight. Nothing may follow half
// of a message.
func TestHalfWrittenMessageIsFollowedByNoClose(t *testing.T) {
	const one = 9 // bytes
	for took, want := range map[int]string{
		0: "game< Close 1001 disconnected", 1: "game<; mode shut", one: "game< one, Close 1001 disconnected", one + 1: "game< one; game<; mode shut",
	} {
		attached(t, hard).play(`client> one, two; game lends; drop; terminate; game wrote %d; %s; free`, took, want)
	}
}

// The upstream is released between the check of a resume and its attach.
func TestAttachIsRefusedWithoutUpstream(t *testing.T) {
	b := attached(t, hard)
	want, p := session.Resume{Gen: b.s.Generation()}, b.pass()
	if ref := b.s.Check(b.now, want); ref != nil || b.s.NeedsUpstream() {
		t.Fatalf("refused: %v", ref)
	}
	b.play(`drop`)
	a, ref := b.s.Attach(b.now, want, p)
	if a != nil || ref == nil || ref.Code != 0 {
		t.Fatalf("attached: %v, refusal %v; want a retry after", a != nil, ref)
	}
	b.play(`detached; dial; resume 0; client> there; game< there`)
}

// Frames of the gateway that were queued for one upstream are not for the next one: it
// never sent the Ping or heartbeat that they answer.
func TestNextUpstreamGetsNoControlFramesOfPreviousOne(t *testing.T) {
	connecting(t, conf(hard, replies("2", "3")), "").play(`reserve; game> 2; resume 0; client> one; game> Ping A
		game lends // the answer to the heartbeat, one, the Pong
		client> two; drop; dial; game> Ping B
		game lends // nothing: the Pong is queued behind the output in flight
		older wrote 0; resume 0; game< one, two, Pong B`)
}

// Messages that the rate limit holds back are held for the next upstream as well.
func TestRateLimitHoldsMessagesForNextUpstream(t *testing.T) {
	attached(t, hard, rate(1)).play(`client> one, two, three; game< one; drop; game< Close 1001 disconnected
		dial; resume 0; game<; 1s; game< two; 1s; game< three`)
}
