//go:build linux

package epoll

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"
)

// A side records what happens to one end of a connection.
type side struct {
	conn      *Conn
	connected bool
	got       []byte
	rooms     int
	gone      error
	onData    func([]byte)
}

func (s *side) Connected() { s.connected = true }
func (s *side) Data(b []byte) {
	s.got = append(s.got, b...)
	if s.onData != nil {
		s.onData(b)
	}
}
func (s *side) Room()          { s.rooms++ }
func (s *side) Gone(err error) { s.gone = err }

// pair connects two sides over loopback.
func pair(t *testing.T) (l *Loop, client, server *side) {
	t.Helper()
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	client, server = new(side), new(side)
	addr, err := l.Listen(netip.MustParseAddrPort("127.0.0.1:0"), func(c *Conn) Owner {
		server.conn, server.connected = c, true
		return server
	})
	if err != nil {
		t.Fatal(err)
	}
	if client.conn, err = l.Dial(addr, client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.conn.Close()
		server.conn.Close()
		l.Close()
	})
	until(t, l, func() bool { return client.connected && server.connected })
	return l, client, server
}

func until(t *testing.T, l *Loop, done func() bool) {
	t.Helper()
	for range 100_000 {
		if done() {
			return
		}
		if err := l.Wait(Now() + int64(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("it does not happen")
}

// More than any socket buffer holds: the rest is queued and sent later.
func TestOutputBeyondTheSocketBufferIsSentLater(t *testing.T) {
	l, client, server := pair(t)
	want := bytes.Repeat([]byte("0123456789abcdef"), 2<<20)
	client.conn.Write(want)
	if len(client.conn.pending) == 0 {
		t.Fatal("the socket accepted all of it, so the test shows nothing")
	}
	client.conn.Write([]byte("end"))
	until(t, l, func() bool { return len(server.got) >= len(want)+3 })
	if !bytes.Equal(server.got, append(want, "end"...)) {
		t.Error("it arrived otherwise than it was sent")
	}
}

func TestRoomIsCalledRepeatedlyForAHungryConn(t *testing.T) {
	l, client, server := pair(t)
	server.conn.Hungry(true)
	until(t, l, func() bool { return server.rooms > 10 })
	server.conn.Hungry(false)
	rooms := server.rooms
	client.conn.Write([]byte("x"))
	until(t, l, func() bool { return len(server.got) == 1 })
	if server.rooms != rooms {
		t.Error("it is called although it is hungry no more")
	}
}

func TestEndAndResetAreDistinguished(t *testing.T) {
	l, client, server := pair(t)
	client.conn.Close()
	until(t, l, func() bool { return server.gone != nil })
	if server.gone != io.EOF || client.gone != nil {
		t.Errorf("close: %v there, %v here", server.gone, client.gone)
	}
	l, client, server = pair(t)
	client.conn.Reset()
	until(t, l, func() bool { return server.gone != nil })
	if errors.Is(server.gone, io.EOF) || client.gone != nil {
		t.Errorf("reset: %v there, %v here", server.gone, client.gone)
	}
}

func TestRefusedDialIsGone(t *testing.T) {
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := new(side)
	if _, err := l.Dial(netip.MustParseAddrPort("127.0.0.1:1"), s); err != nil {
		return // at once, which the kernel may do
	}
	until(t, l, func() bool { return s.gone != nil })
	if s.connected {
		t.Error("connected without a listener")
	}
}

// An event for a closed descriptor must not reach its next owner.
func TestClosedConnGetsNoEvents(t *testing.T) {
	l, client, server := pair(t)
	client.conn.Write([]byte("late"))
	server.conn.Close()
	if err := l.Wait(Now()); err != nil {
		t.Fatal(err)
	}
	if len(server.got) > 0 || server.gone != nil {
		t.Errorf("%q, %v", server.got, server.gone)
	}
}

func TestNowIsTheMachinesClock(t *testing.T) {
	a, b, c := monotonic(), Now(), monotonic()
	slack := int64(time.Millisecond)
	if b < a-slack || b > c+slack {
		t.Errorf("%d does not lie between %d and %d", b, a, c)
	}
}

func turns(p *Pace, now int64) (who []int, due []int64) {
	p.Run(now, func(i int, at int64) { who, due = append(who, i), append(due, at) })
	return who, due
}

func TestPaceSpreadsItsSenders(t *testing.T) {
	p := NewPace(1000, 100, 0, 4, 0)
	who, due := turns(p, 1130)
	if want := []int{0, 1, 2, 3, 0, 1}; len(who) != len(want) || due[1] != 1025 || due[5] != 1125 || who[5] != 1 {
		t.Errorf("%v at %v", who, due)
	}
	if next, ok := p.Next(); !ok || next != 1150 {
		t.Errorf("next at %d", next)
	}
}

func TestPaceSendsAGrainTogether(t *testing.T) {
	p := NewPace(1000, 100, 50, 4, 0)
	if who, _ := turns(p, 1049); len(who) != 1 { // only the first is due at the start
		t.Errorf("%v before the grain is over", who)
	}
	if who, due := turns(p, 1050); len(who) != 2 || due[0] != 1050 || due[1] != 1050 {
		t.Errorf("%v at %v", who, due)
	}
}

func TestShiftedPaceGoesOnWithTheNextSender(t *testing.T) {
	p := NewPace(1000, 100, 0, 4, 0)
	turns(p, 1030) // two of four
	p.Shift(5000)
	if who, _ := turns(p, 6049); len(who) > 0 {
		t.Errorf("%v before it is due", who)
	}
	if who, due := turns(p, 6050); len(who) != 1 || who[0] != 2 || due[0] != 6050 {
		t.Errorf("%v at %v", who, due)
	}
	(*Pace)(nil).Shift(1) // nothing is sent at a pace
}

func TestPollHandlesAllThatIsPendingAndDoesNotWait(t *testing.T) {
	l, client, server := pair(t)
	client.conn.Write([]byte("x"))
	before := Now()
	for len(server.got) == 0 && Now() < before+int64(10*time.Second) { // loopback delivers at once, or nearly so
		if err := l.Poll(); err != nil {
			t.Fatal(err)
		}
	}
	if string(server.got) != "x" {
		t.Fatalf("%q", server.got)
	}
	before = Now()
	if err := l.Poll(); err != nil || Now()-before > int64(time.Second) {
		t.Errorf("%v after %v", err, time.Duration(Now()-before))
	}
}

func TestPaceEndsAfterItsTurns(t *testing.T) {
	p := NewPace(0, 100, 0, 3, 2)
	if who, _ := turns(p, 1<<40); len(who) != 6 {
		t.Errorf("%v, want each of 3 twice", who)
	}
	if _, ok := p.Next(); ok {
		t.Error("it goes on")
	}
	if _, ok := (*Pace)(nil).Next(); ok {
		t.Error("there is none, and it goes on")
	}
}
