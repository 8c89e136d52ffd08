package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/session"
)

// A table is a session with a driver that a test plays call by call. The simulation runs
// everything at once; these tests tell one story each.
type table struct {
	t     *testing.T
	s     *session.Session
	store *replay.Store
	now   session.Time
	att   *session.Attachment
	up    *session.Upstream
	asked string // the argument of the ping behind the newest `upstream`
}

func config() session.Config {
	terms := session.Terms{Grace: 30 * time.Second, GraceBeforeStart: 30 * time.Second}
	return session.Config{
		ID: "s1", Resumable: true, Terms: terms, GraceUnconfirmed: 5 * time.Second, Heartbeat: 15 * time.Second,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
	}
}

func hardConfig() session.Config {
	c := config()
	c.Hard = true
	return c
}

// newTable returns a session whose client is attached.
func newTable(t *testing.T, c session.Config) *table {
	b := connecting(t, c, nil)
	b.att = b.s.AttachFirst(b.now, b.pass())
	b.says("") // acks hello: the generation is confirmed
	return b
}

// connecting returns a session that no client has been attached to yet.
func connecting(t *testing.T, c session.Config, early []byte) *table {
	b := &table{t: t, now: session.Time(time.Second), store: replay.NewStore(1<<30, nil)}
	key := byte(0)
	c.Store, c.Key = b.store, func() [4]byte { key++; return [4]byte{key, 1, 2, 3} }
	b.s = session.New(c, b.now, early)
	b.up = b.s.Upstream()
	return b
}

func (b *table) pass() session.Pass {
	return session.Pass{Gen: b.s.NextGen(), Token: "t", Expires: b.now.Add(time.Hour), Renew: time.Hour}
}

// sleep advances the clock, calling Tick whenever the session asks for it.
func (b *table) sleep(d time.Duration) {
	end := b.now.Add(d)
	for next := b.s.Next(); next > 0 && next <= end; next = b.s.Next() {
		b.now = max(b.now, next)
		b.s.Tick(b.now)
	}
	b.now = end
}

// says is a message of the client; "" is an ack of 0.
func (b *table) says(text string) {
	if text == "" {
		text = "\x10ack 0"
	}
	b.s.Read(b.now, b.att, masked(frame.Text, text))
	b.s.Retain()
}

func masked(op byte, text string) []byte {
	return frame.AppendMasked(nil, op, [4]byte{9, 9, 9, 9}, []byte(text))
}

// game delivers bytes from the upstream.
func (b *table) game(bytes string) {
	b.t.Helper()
	room := b.s.Room(b.up)
	if len(room) < len(bytes) {
		b.t.Fatalf("room for %d bytes of the upstream, want %d", len(room), len(bytes))
	}
	b.s.Read(b.now, b.up, room[:copy(room, bytes)])
}

// text is a text message as an upstream sends it.
func text(s string) string { return string(frame.Append(nil, frame.Text, []byte(s))) }

// drop breaks the client's connection.
func (b *table) drop() {
	b.s.Disconnected(b.now, b.att, "dropped")
	b.att = nil
}

// resume attaches a client that has received n messages.
func (b *table) resume(n uint64) {
	b.t.Helper()
	a, ref := b.s.Attach(b.now, session.Resume{Gen: b.s.Generation(), Received: n}, b.pass())
	if ref != nil {
		b.t.Fatalf("resume refused: %v", ref)
	}
	b.att = a
}

// takes lets u's connection accept up to limit bytes of its output, and returns them.
func (b *table) takes(u *session.Upstream, limit int) []byte {
	got := b.lend(u)
	got = got[:min(len(got), limit)]
	b.s.Wrote(b.now, u, len(got), false)
	return got
}

// lend begins a write to u's connection.
func (b *table) lend(u *session.Upstream) (all []byte) {
	for _, p := range b.s.Out(b.now, u, nil) {
		all = append(all, p...)
	}
	return all
}

// wants takes all output for u's connection, and checks that it is these frames: a text,
// "close <code> <reason>", "ping <payload>" or "pong <payload>".
func (b *table) wants(u *session.Upstream, want ...string) {
	b.t.Helper()
	b.gets(b.takes(u, 1<<30), want...)
}

// gets checks bytes that were written to an upstream.
func (b *table) gets(bytes []byte, want ...string) {
	b.t.Helper()
	if got := frames(b.t, bytes); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		b.t.Fatalf("the upstream got %q, want %q", got, want)
	}
}

// frames describes whole frames.
func frames(t *testing.T, b []byte) (list []string) {
	t.Helper()
	for len(b) > 0 {
		h, err := frame.Parse(b)
		end := h.Size + int(h.Length)
		if err != nil || h.Size == 0 || end > len(b) {
			t.Fatalf("after %q no whole frame follows: % .20x, %v", list, b, err)
		}
		p := b[h.Size:end]
		if h.Masked {
			frame.XOR(p, h.Key)
		}
		switch h.Op {
		case frame.Close:
			code, reason, _ := frame.ParseClose(p)
			list = append(list, fmt.Sprintf("close %d %s", code, reason))
		case frame.Ping:
			list = append(list, strings.TrimSpace("ping "+string(p)))
		case frame.Pong:
			list = append(list, "pong "+string(p))
		default:
			list = append(list, string(p))
		}
		b = b[end:]
	}
	return list
}

func (b *table) wantState(want session.State) {
	b.t.Helper()
	if got := b.s.State(); got != want {
		b.t.Fatalf("state %v, want %v", got, want)
	}
}

// wantNothingHeld checks that all memory has been returned to the store.
func (b *table) wantNothingHeld() {
	b.t.Helper()
	if n := b.store.Used(); n != 0 {
		b.t.Errorf("the store is missing %d bytes", n)
	}
}
