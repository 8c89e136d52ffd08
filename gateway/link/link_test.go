package link

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
)

// A pair is two ends of a link.
type pair struct {
	t            *testing.T
	front, owner *Link
	below, other net.Conn // their connections
	came         chan *Stream
}

// on makes a pair on a connection.
func on(t *testing.T, a, b net.Conn) *pair {
	p := &pair{t: t, below: a, other: b, came: make(chan *Stream, 1000)}
	p.front, p.owner = New(nil), New(func(s *Stream) { p.came <- s })
	for l, conn := range map[*Link]net.Conn{p.front: a, p.owner: b} {
		l.Begin(conn.LocalAddr(), conn.RemoteAddr())
		l.Run(conn)
	}
	t.Cleanup(func() { p.front.Close(); p.owner.Close() })
	return p
}

func inPair(t *testing.T, f func(*testing.T, *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b := wstest.Pipe(1 << 20)
		f(t, on(t, a, b))
	})
}

// open opens a stream, and returns both ends.
func (p *pair) open() (front, owner *Stream) {
	p.t.Helper()
	s, err := p.front.Open()
	if err != nil {
		p.t.Fatal(err)
	}
	return s, <-p.came
}

// wantEnd reads from a stream until its end, which must be want.
func wantEnd(t *testing.T, s net.Conn, content string, want error) {
	t.Helper()
	got, err := io.ReadAll(s)
	if err == nil {
		err = io.EOF
	}
	if string(got) != content || !errors.Is(err, want) {
		t.Errorf("%.40q, %v; want %.40q, %v", got, err, content, want)
	}
}

func (l *Link) usable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil && !l.leaving
}

func (l *Link) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.streams)
}

func TestBytesArriveWholeAndInOrderOnEachStream(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		var all sync.WaitGroup
		for range 20 {
			front, owner := p.open()
			for _, way := range [][2]*Stream{{front, owner}, {owner, front}} {
				sent := make([]byte, 3*window+17)
				rand.Read(sent)
				all.Go(func() {
					for rest := sent; len(rest) > 0; {
						n := min(len(rest), 1+int(rest[0])*40)
						way[0].Write(rest[:n])
						rest = rest[n:]
					}
					way[0].CloseWrite()
				})
				all.Go(func() { wantEnd(t, way[1], string(sent), io.EOF) })
			}
		}
		all.Wait()
	})
}

// Each client has room of its own: one that does not read gets window bytes, and the others all of theirs.
func TestSlowClientHoldsUpNoOther(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		slow, toSlow := p.open()
		written := make(chan int)
		go func() {
			n, _ := toSlow.Write(make([]byte, 2*window))
			written <- n
		}()
		fast, toFast := p.open()
		go func() {
			for range 5 {
				toFast.Write(bytes.Repeat([]byte("x"), window))
			}
			toFast.CloseWrite()
		}()
		wantEnd(t, fast, strings.Repeat("x", 5*window), io.EOF)
		synctest.Wait()
		p.front.mu.Lock()
		wstest.Equal(t, "bytes that are kept for the slow client", len(slow.in), window)
		p.front.mu.Unlock()
		select {
		case n := <-written:
			t.Errorf("%d bytes were written, without a reader", n)
		default:
		}
		io.ReadFull(slow, make([]byte, 2*window))
		wstest.Equal(t, "bytes written once it reads", <-written, 2*window)
	})
}

// A node that keeps to no window is not believed.
func TestMoreThanTheWindowEndsTheLink(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		front, owner := p.open()
		p.owner.mu.Lock()
		owner.send = 2 * window
		p.owner.mu.Unlock()
		go owner.Write(make([]byte, 2*window))
		<-p.front.Done()
		wantEnd(t, front, strings.Repeat("\x00", window), errFlood)
	})
}

func TestUnreadableFramesEndTheLink(t *testing.T) {
	for name, frame := range map[string][]byte{
		"of no kind":        {9, 0, 0, 0, 0, 0, 0, 1},
		"open at the front": {byte(open), 0, 0, 0, 0, 0, 0, 9},
		"too long":          {byte(data), 0xff, 0, 0, 0, 0, 0, 1},
	} {
		inPair(t, func(t *testing.T, p *pair) {
			front, _ := p.open()
			synctest.Wait()
			p.other.Write(frame)
			synctest.Wait()
			if p.front.usable() {
				t.Errorf("a frame %s is accepted", name)
			}
			front.Close()
		})
	}
}

// The end of one direction leaves the other open. What was written before an end is read.
func TestEndsReachTheOtherEnd(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		front, owner := p.open()
		front.Write([]byte("up"))
		front.CloseWrite()
		wantEnd(t, owner, "up", io.EOF)
		owner.Write([]byte("down"))
		owner.Close()
		synctest.Wait()
		wantEnd(t, front, "down", errReset)
		if _, err := front.Write([]byte("x")); !errors.Is(err, errReset) {
			t.Errorf("a write after the end: %v", err)
		}
		front.Close()
		if _, err := front.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a read after Close: %v", err)
		}
		synctest.Wait()
		wstest.Equal(t, "streams left", p.front.count()+p.owner.count(), 0)
	})
}

func TestCloseEndsCallsThatWait(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		front, _ := p.open()
		ended := make(chan error)
		go func() { _, err := front.Read(make([]byte, 1)); ended <- err }()
		go func() { _, err := front.Write(make([]byte, 2*window)); ended <- err }()
		synctest.Wait()
		front.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("%v, want it closed", err)
			}
		}
	})
}

func TestStreamsObserveDeadlines(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		front, owner := p.open()
		began := time.Now()
		front.SetDeadline(began.Add(3 * time.Second))
		_, readErr := front.Read(make([]byte, 1))
		_, writeErr := front.Write(make([]byte, 2*window))
		for what, err := range map[string]error{"read": readErr, "write": writeErr} {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
		}
		wstest.Equal(t, "it took", time.Since(began), 3*time.Second)
		front.SetDeadline(time.Time{})
		owner.Write([]byte("later"))
		owner.CloseWrite()
		wantEnd(t, front, "later", io.EOF)
	})
}

// Every stream of a link that is lost ends, at both ends, with what has arrived before.
func TestEveryStreamOfALostLinkEnds(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		var all []*Stream
		for range 10 {
			front, owner := p.open()
			owner.Write([]byte("last words"))
			all = append(all, front, owner)
		}
		synctest.Wait()
		p.below.Close()
		synctest.Wait()
		for i, s := range all {
			wantEnd(t, s, []string{"last words", ""}[i%2], p.front.err)
			break
		}
		for _, s := range all {
			if _, err := s.Write([]byte("x")); err == nil {
				t.Error("a stream goes on without its link")
			}
		}
		if _, err := p.front.Open(); err == nil {
			t.Error("a lost link opens a stream")
		}
	})
}

// mute is a connection that delivers nothing once it is switched off.
type mute struct {
	net.Conn
	mu  sync.Mutex
	off bool
}

func (m *mute) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.off {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// A link on which nothing comes any more is noticed; one on which there is nothing to say lives on.
func TestSilentLinkIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := wstest.Pipe(1 << 20)
		m := &mute{Conn: b}
		p := on(t, a, m)
		front, _ := p.open()
		time.Sleep(time.Hour)
		if !p.front.usable() {
			t.Fatal("a link without traffic has ended")
		}
		m.mu.Lock()
		m.off = true
		m.mu.Unlock()
		silent := time.Now()
		wantEnd(t, front, "", ErrLost)
		if took := time.Since(silent); took < (lostAfter-1)*beat || took > (lostAfter+1)*beat {
			t.Errorf("noticed after %v", took)
		}
	})
}

// After Leave no stream is accepted, and those that are open go on. The link ends with the last of them.
func TestLeave(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		front, owner := p.open()
		late, err := p.front.Open()
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		<-p.came
		p.owner.Leave()
		refused, err := p.front.Open() // before it has heard of it
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, refused, "", ErrRefused)
		if _, err := p.front.Open(); !errors.Is(err, ErrRefused) || p.front.usable() {
			t.Errorf("another stream: %v", err)
		}
		late.Close()
		owner.Write([]byte("still"))
		owner.CloseWrite()
		wantEnd(t, front, "still", io.EOF)
		front.Close()
		synctest.Wait()
		select {
		case <-p.front.Done():
		default:
			t.Error("the link is still there, without a stream")
		}
	})
}

// A node cannot have another keep more than so many streams.
func TestStreamsOfALinkAreBounded(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		front, _ := p.open()
		p.owner.mu.Lock()
		for id := range uint32(maxStreams - 1) {
			p.owner.streams[id+10] = nil
		}
		p.owner.mu.Unlock()
		refused, err := p.front.Open()
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, refused, "", ErrRefused)
		p.owner.mu.Lock()
		clear(p.owner.streams)
		p.owner.mu.Unlock()
		p.open()
		front.Close()
	})
}

// What is written while the connection is busy goes out together.
func TestWhatIsDueGoesOutTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := wstest.Pipe(1 << 20)
		c := &counted{Conn: b}
		p := on(t, a, c)
		var fronts []*Stream
		for range 100 {
			front, owner := p.open()
			fronts = append(fronts, front)
			p.came <- owner
		}
		synctest.Wait()
		before := c.count()
		c.held.Lock() // the connection is busy
		for range fronts {
			(<-p.came).Write([]byte("tick"))
		}
		c.held.Unlock()
		for _, s := range fronts {
			io.ReadFull(s, make([]byte, 4))
		}
		if n := c.count() - before; n > 3 {
			t.Errorf("%d writes for %d streams", n, len(fronts))
		}
	})
}

type counted struct {
	net.Conn
	held sync.Mutex
	mu   sync.Mutex
	n    int
}

func (c *counted) Write(p []byte) (int, error) {
	c.held.Lock()
	defer c.held.Unlock()
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// What an event loop does without waiting succeeds again once it is notified.
func TestStreamIsUsedWithoutWaiting(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		front, owner := p.open()
		notified := 0
		front.Watch(func(any) { notified++ })
		wantNotified := func(what string) {
			t.Helper()
			synctest.Wait()
			if notified == 0 {
				t.Errorf("%s: nobody is notified", what)
			}
			notified = 0
		}
		b := make([]byte, 2*window)
		wantRead := func(want int, wantErr error) {
			t.Helper()
			if n, err := front.Receive(b); n != want || !errors.Is(err, wantErr) {
				t.Errorf("%d, %v; want %d, %v", n, err, want, wantErr)
			}
		}
		wantRead(0, nil)
		owner.Write([]byte("abc"))
		wantNotified("bytes")
		wantRead(3, nil)
		n, full, err := front.Send(b)
		if n != window || !full || err != nil {
			t.Errorf("%d bytes are sent, full %v, %v; want a window", n, full, err)
		}
		synctest.Wait()
		io.ReadFull(owner, b[:window])
		wantNotified("credit")
		if n, full, err := front.Send(b[:10]); n != 10 || full || err != nil {
			t.Errorf("%d bytes are sent, full %v, %v", n, full, err)
		}
		owner.CloseWrite()
		wantNotified("an end")
		wantRead(0, io.EOF)
		owner.Close()
		wantNotified("a close")
		wantRead(0, errReset)
	})
}

// Streams that a link has no room for go on once it has written.
func TestFullLinkHoldsStreamsUpUntilItHasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front := New(nil)
		defer front.Close()
		front.Host(t, func() {})
		var held []*Stream
		notified := 0
		for i := 0; len(held) < 2; i++ {
			if i > 2*maxDue/window {
				t.Fatalf("%d streams are not held up", i)
			}
			s, err := front.Open()
			if err != nil {
				t.Fatal(err)
			}
			if n, _, _ := s.Send(make([]byte, window)); n < window {
				s.Watch(func(on any) {
					notified++
					if on != t {
						t.Errorf("on %v, want the loop", on)
					}
				})
				held = append(held, s)
			}
		}
		if n := len(front.TakeDue(nil, t)); n < maxDue || n > maxDue+2*maxFrame {
			t.Errorf("%d bytes are due, want no more than %d", n, maxDue)
		}
		wstest.Equal(t, "streams notified", notified, 2)
		for _, s := range held {
			s.Watch(nil)
			if n, full, err := s.Send(make([]byte, 10)); n != 10 || full || err != nil {
				t.Errorf("%d bytes are sent, full %v, %v", n, full, err)
			}
		}
	})
}

// Frames may arrive in pieces of any size.
func TestFramesArriveInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		came := make(chan *Stream, 10)
		front, owner := New(nil), New(func(s *Stream) { came <- s })
		defer front.Close()
		defer owner.Close()
		var sent string
		s, _ := front.Open()
		for i := range 50 {
			text := strings.Repeat("x", i)
			s.Send([]byte(text))
			sent += text
		}
		s.CloseWrite()
		all := front.TakeDue(nil, nil)
		for n := 1; len(all) > 0; n = n%23 + 1 {
			n = min(n, len(all))
			owner.Arrived(all[:n], nil)
			all = all[n:]
		}
		wantEnd(t, <-came, sent, io.EOF)
	})
}
