package netio

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/replay"
	"reseat/gateway/session"
)

// A stuck is a connection whose client takes nothing. It remembers until when it
// would have been waited for.
type stuck struct {
	net.Conn
	until time.Time
}

func (c *stuck) SetDeadline(t time.Time) error {
	c.until = t
	return c.Conn.SetDeadline(t)
}

func (c *stuck) SetReadDeadline(t time.Time) error {
	c.until = t
	return c.Conn.SetReadDeadline(t)
}

type quiet struct{ closed chan struct{} }

func (quiet) Events([]session.Event) {}
func (quiet) Panicked(any, []byte)   {}
func (q quiet) Closed()              { close(q.closed) }

// superseded is a session whose client has been taken over so many times by others
// that take nothing either, and the connections, oldest first.
func superseded(t *testing.T, times int, with ...func(*session.Config)) (s *Session, old []*stuck) {
	t.Helper()
	gameEnd, game := net.Pipe()
	d := NewDriver(clock())
	cfg := session.Config{
		ID: "s", Resumable: true, Terms: session.Terms{Grace: time.Minute, GraceBeforeStart: time.Minute}, Heartbeat: time.Minute,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20, Store: replay.NewStore(1<<30, nil), Key: func() [4]byte { return [4]byte{} },
	}
	for _, change := range with {
		change(&cfg)
	}
	core := session.New(cfg, d.now(), nil)
	watch := quiet{make(chan struct{})}
	s = d.New(core, gameEnd, watch)
	pass := session.Pass{Gen: 1, Expires: d.now().Add(time.Hour), Renew: time.Hour}
	var theirs []net.Conn
	for i := range times + 1 {
		ours, other := net.Pipe()
		theirs = append(theirs, other)
		c := &stuck{Conn: ours}
		old = append(old, c)
		refusal := s.Attach(c, nil, func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
			if i == 0 {
				return core.AttachFirst(now, pass), nil
			}
			pass.Gen = core.NextGen()
			return core.Attach(now, session.Resume{Gen: pass.Gen - 1}, pass)
		})
		if refusal != nil {
			t.Fatal(refusal)
		}
	}
	t.Cleanup(func() {
		s.Do(func(core *session.Session, now session.Time) { core.Terminate(now, 1000, "test over") })
		for _, c := range append(theirs, game) {
			c.Close()
		}
		<-watch.closed
		s.running.Wait()
	})
	return s, old
}

// Of the connections that were taken over the newest have the usual time to take
// their Close, and those before them little.
func TestTheOldestOfManyConnectionsThatWereTakenOverHasLittleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, old := superseded(t, session.MaxLingering+2)
		for i, c := range old[:session.MaxLingering+2] {
			want := clientFlush
			if i < 2 {
				want = hurryTime
			}
			if left := time.Until(c.until); left != want {
				t.Errorf("number %d has %v, want %v", i, left, want)
			}
		}
	})
}

// Its time stays little where what it was told to do begins later: somebody else
// was writing.
func TestAConnectionThatIsHurriedBeforeItBeginsToPartStaysHurried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, old := superseded(t, 0)
		s.enter()
		l := s.down
		l.hurry()
		s.mu.Unlock()
		refusal := s.Attach(&stuck{Conn: closedPipe()}, nil, func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
			gen := core.NextGen()
			return core.Attach(now, session.Resume{Gen: gen - 1}, session.Pass{Gen: gen, Expires: now.Add(time.Hour), Renew: time.Hour})
		})
		if refusal != nil {
			t.Fatal(refusal)
		}
		if left := time.Until(old[0].until); left != hurryTime {
			t.Errorf("it has %v, want %v", left, hurryTime)
		}
	})
}

func closedPipe() net.Conn {
	c, _ := net.Pipe()
	c.Close()
	return c
}

// A session holds nothing of a connection that is closed.
func TestNothingIsKeptOfConnectionsThatWereTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := superseded(t, 3*session.MaxLingering)
		s.mu.Lock()
		if n := len(s.lingering); n != session.MaxLingering {
			t.Errorf("%d are being closed, want %d", n, session.MaxLingering)
		}
		s.mu.Unlock()
		time.Sleep(clientFlush + session.LingerTime)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.lingering); n != 0 {
			t.Errorf("%d are kept once their time is over", n)
		}
	})
}
