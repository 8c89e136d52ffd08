//go:build linux

package epoll

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// A side records what happens to one end of a connection.
type side struct {
	conn      *Conn
	connected bool
	got       []byte
	gone      error
}

func (s *side) Connected()     { s.connected = true }
func (s *side) Data(b []byte)  { s.got = append(s.got, b...) }
func (s *side) Room()          {}
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
	if client.conn, err = l.Dial(netip.Addr{}, addr, client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.conn.Close()
		server.conn.Close()
		l.Close()
	})
	until(t, l, "the connection", func() bool { return client.connected && server.connected })
	return l, client, server
}

func until(t *testing.T, l *Loop, what string, done func() bool) {
	t.Helper()
	for end := Now() + int64(30*time.Second); !done(); {
		if err := l.Wait(end); err != nil || Now() >= end {
			t.Fatalf("%s: %v after 30 s", what, err)
		}
	}
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
	until(t, l, "all of it", func() bool { return len(server.got) >= len(want)+3 })
	if !bytes.Equal(server.got, append(want, "end"...)) {
		t.Error("it arrived otherwise than it was sent")
	}
}

// An event for a closed descriptor must not reach its next owner.
func TestClosedConnGetsNoEvents(t *testing.T) {
	l, client, server := pair(t)
	client.conn.Write([]byte("late"))
	server.conn.Close()
	if err := l.Poll(); err != nil {
		t.Fatal(err)
	}
	if len(server.got) > 0 || server.gone != nil {
		t.Errorf("%q, %v", server.got, server.gone)
	}
}

func TestPaceSpreadsItsSenders(t *testing.T) {
	for name, tt := range map[string]struct {
		pace *Pace
		now  int64
		want string // sender@due
	}{
		"evenly":     {NewPace(1000, 100, 0, 4, 0), 1130, "0@1000 1@1025 2@1050 3@1075 0@1100 1@1125 "},
		"by grains":  {NewPace(1000, 100, 50, 4, 0), 1050, "0@1000 1@1050 2@1050 "},
		"not before": {NewPace(1000, 100, 50, 4, 0), 1049, "0@1000 "},
		"two turns":  {NewPace(0, 100, 0, 3, 2), 1 << 40, "0@0 1@33 2@66 0@100 1@133 2@166 "},
		"none":       {nil, 1 << 40, ""},
	} {
		got := ""
		tt.pace.Run(tt.now, func(i int, at int64) { got += fmt.Sprintf("%d@%d ", i, at) })
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	shifted := NewPace(1000, 100, 0, 4, 0)
	shifted.Run(1030, func(int, int64) {})
	shifted.Shift(5000)
	if next, ok := shifted.Next(); !ok || next != 6050 {
		t.Errorf("after a pause the next is due at %d, want 6050", next)
	}
}
