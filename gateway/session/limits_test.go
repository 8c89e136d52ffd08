package session_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// RFC 6455 section 5.3: each frame to the upstream has its own masking key, and never the
// client's.
func TestEachUpstreamFrameHasNewMaskingKey(t *testing.T) {
	b := newTable(t, config())
	b.says("one")
	b.says("two")
	keys := [][4]byte{{9, 9, 9, 9}}
	for raw := b.takes(b.up, 1<<20); len(raw) > 0; {
		h, err := frame.Parse(raw)
		if err != nil || !h.Masked {
			t.Fatalf("% x: masked %v, %v", raw, h.Masked, err)
		}
		if slices.Contains(keys, h.Key) {
			t.Errorf("key %v is used again", h.Key)
		}
		keys = append(keys, h.Key)
		raw = raw[h.Size+int(h.Length):]
	}
	if len(keys) != 3 {
		t.Errorf("%d frames, want 2", len(keys)-1)
	}
}

func TestUnackedMessagesLimitIsExact(t *testing.T) {
	b := newTable(t, config())
	for range session.UnackedMessages {
		b.says("x")
	}
	b.wantState(session.Attached)
	b.says("one more")
	b.wantState(session.Ended)
}

// Protocol section 5.3: a client that answers the ping after a message has a minute to ack
// that message.
func TestMissingAckIsViolationAfterOneMinute(t *testing.T) {
	b := newTable(t, config())
	b.game(text("one"))
	wait := func(d time.Duration) {
		for ; d > 0; d -= time.Second {
			b.sleep(time.Second)
			b.says("\x10ping")
			b.reads()
		}
	}
	wait(16 * time.Second) // the first ping has been sent
	b.says("\x10pong 1")
	wait(59 * time.Second)
	b.wantState(session.Attached)
	b.now = b.now.Add(time.Second)
	b.s.Tick(b.now)
	b.wantState(session.Ended)
}

// Messages read from the upstream before a drain reach the client before its notification.
func TestDrainFlushesReadMessagesFirst(t *testing.T) {
	b := newTable(t, config())
	b.reads() // hello
	b.game(text("one") + text("two"))
	b.s.Drain(b.now, time.Second)
	var all []byte
	for {
		var out []byte
		for _, p := range b.s.Out(b.now, b.att, nil) {
			out = append(out, p...)
		}
		if len(out) == 0 {
			break
		}
		b.s.Wrote(b.now, b.att, len(out), false)
		all = append(all, out...)
	}
	got := frames(t, all)
	if len(got) < 3 || fmt.Sprint(got[:2]) != "[one two]" || got[len(got)-1] != "close 4503 draining" {
		t.Errorf("it got %q, want one, two and Close 4503", got)
	}
}

// A client that sent Close 1001 may return with its cookie. After another code it may not,
// once the upstream has closed too.
func TestCookieSessionSurvivesGoingAwayClose(t *testing.T) {
	for code, want := range map[int]session.State{1001: session.Detached, 1000: session.Ended} {
		b := newKept(t, keptConfig())
		b.closes(code)
		b.game(closing(code, ""))
		if got := b.s.State(); got != want {
			t.Errorf("after Close %d it is %v, want %v", code, got, want)
		}
	}
}
