package netio

import (
	"io"
	"net"
	"testing"
	"time"
	"unsafe"

	"reseat/gateway/internal/test/leaks"
	"reseat/gateway/replay"
	"reseat/gateway/session"
)

// clock is a session clock that starts now.
func clock() func() session.Time {
	start := time.Now()
	return func() session.Time { return session.Time(time.Since(start)) + 1 }
}

// clientFlush is how long a client may take to read the remaining output.
var clientFlush = new(session.Attachment).FlushTime()

// closeObserver is an Observer that records only the end.
type closeObserver struct{ closed chan struct{} }

func (closeObserver) Events([]session.Event) {}
func (closeObserver) Panicked(any, []byte)   {}
func (o closeObserver) Closed()              { close(o.closed) }

// newSession starts a session over up, without a client. When the test ends it
// terminates the session and closes peers.
func newSession(t *testing.T, up net.Conn, peers *[]net.Conn, with ...func(*session.Config)) *Session {
	t.Helper()
	cfg := session.Config{
		ID: "s", Terms: session.Terms{Grace: time.Minute, GraceBeforeStart: time.Minute}, GraceUnconfirmed: time.Minute, Heartbeat: time.Minute,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20, Store: replay.NewStore(1<<30, nil), Key: func() [4]byte { return [4]byte{} },
	}
	for _, change := range with {
		change(&cfg)
	}
	d, watch := NewDriver(clock()), closeObserver{make(chan struct{})}
	s := d.New(session.New(cfg, d.now(), nil), up, watch)
	t.Cleanup(func() {
		s.Do(func(core *session.Session, now session.Time) { core.Terminate(now, 1000, "test over") })
		for _, c := range *peers {
			c.Close()
		}
		<-watch.closed
		s.running.Wait()
		d.Close()
		d.Wait()
	})
	return s
}

// attachFirst attaches the session's first client over conn.
func (s *Session) attachFirst(conn net.Conn) {
	s.Attach(conn, nil, func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
		return core.AttachFirst(now, session.Pass{Gen: 1, Expires: now.Add(time.Hour), Renew: time.Hour}), nil
	})
}

// supersede resumes the session over conn.
func (s *Session) supersede(t *testing.T, conn net.Conn) {
	t.Helper()
	refusal := s.Attach(conn, nil, func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
		gen := core.NextGen()
		return core.Attach(now, session.Resume{Gen: gen - 1}, session.Pass{Gen: gen, Expires: now.Add(time.Hour), Renew: time.Hour})
	})
	if refusal != nil {
		t.Fatal(refusal)
	}
}

// Two goroutines may read the clock in one order and lock in the other: the
// session's time must not go back.
func TestSessionTimeNeverGoesBack(t *testing.T) {
	s := &Session{driver: NewDriver(clock())}
	later := s.driver.now().Add(time.Hour) // read by a goroutine that locked earlier
	s.now = later
	s.enter()
	defer s.mu.Unlock()
	if s.now != later {
		t.Errorf("it went back by %v", later.Sub(s.now))
	}
}

func TestMain(m *testing.M) { leaks.Main(m) }

// There are one session and two legs for each player: see the test of package session.
func TestSessionAndLegsFitIntoTheirSizeClass(t *testing.T) {
	const class = 208 // see runtime/sizeclasses.go
	for name, size := range map[string]uintptr{"a Session": unsafe.Sizeof(Session{}), "a leg": unsafe.Sizeof(leg{})} {
		if size > class {
			t.Errorf("%s takes %d bytes, want at most %d", name, size, class)
		}
	}
}

// A connection with TLS or compression keeps a buffer for as long as its player is silent.
func TestBlockingReadHoldsLittleMemory(t *testing.T) {
	l := new(leg)
	for _, filled := range []bool{false, true, false} {
		l.filled = filled
		want := heldRead
		if filled {
			want = smallRead
		}
		if b := l.borrow(); len(b) != want {
			t.Errorf("after a read that has filled its buffer, %v: %d bytes, want %d", filled, len(b), want)
		}
		l.giveBack()
	}
}

// If the core panics in an attach, nothing else owns the new connection.
func TestPanicInAttachClosesTheConnection(t *testing.T) {
	s, _ := superseded(t, 0)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	refusal := s.Attach(ours, nil, func(*session.Session, session.Time) (*session.Attachment, *session.Refusal) { panic("injected") })
	if refusal != nil {
		t.Errorf("refusal %v", refusal)
	}
	ours.SetReadDeadline(time.Unix(1, 0))
	if _, err := ours.Read(make([]byte, 1)); err != io.ErrClosedPipe {
		t.Errorf("it is still open: %v", err)
	}
}
