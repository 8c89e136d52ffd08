package session_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/session"
)

// BenchmarkManySessions gives each session in turn a message from its game server, writes
// it to the client, and handles an ack of every tenth. With one session everything is in
// the caches and the time is work; with thousands the rest of the time is waiting for
// memory.
func BenchmarkManySessions(b *testing.B) {
	message := frame.Append(nil, frame.Binary, make([]byte, 128))
	for _, n := range []int{1, 100, 2000, 8000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			seats := newSeats(n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				seat := seats[i*7919%n] // a prime: each comes once a round, and no two neighbours in a row
				seat.down(session.Time(i), message)
				if seat.came%10 == 0 {
					seat.ack(session.Time(i))
				}
			}
		})
	}
}

// A seat is a session and its client.
type seat struct {
	s    *session.Session
	a    *session.Attachment
	out  [][]byte
	came uint64
}

func newSeats(n int) []*seat {
	c := conf()
	c.Store = replay.NewStore(1<<30, nil)
	all := make([]*seat, n)
	for i := range all {
		s := session.New(c, 1, nil)
		all[i] = &seat{s: s, a: s.AttachFirst(1, session.Pass{Gen: 1, Token: "token"})}
		all[i].write(1)
	}
	return all
}

// down sends a message from the game server to the client.
func (s *seat) down(now session.Time, message []byte) {
	u := s.s.Upstream()
	room := s.s.Room(u)
	s.s.Read(now, u, room[:copy(room, message)])
	s.write(now)
	s.s.Next()
	s.came++
}

func (s *seat) write(now session.Time) {
	n := 0
	s.out = s.s.Out(now, s.a, s.out[:0])
	for _, p := range s.out {
		n += len(p)
	}
	s.s.Wrote(now, s.a, n, false)
}

func (s *seat) ack(now session.Time) {
	s.s.Read(now, s.a, masked(frame.Text, fmt.Sprint("\x10ack ", s.came)))
	s.s.Retain()
}

// BenchmarkStates is a message of the game server's for a client that keeps up, and for one that is away.
func BenchmarkStates(b *testing.B) {
	message := frame.Append(nil, frame.Text, []byte(`{"type":"state","entity":7,"at":[100,200]`+strings.Repeat(" ", 85)+"}"))
	for _, c := range []struct {
		name  string
		rules []string
		away  bool
	}{
		{"attached, no rule", nil, false}, {"attached, prefix", []string{`s={"type"`}, false}, {"attached, json", []string{"s=json:/type=state&/entity"}, false},
		{"away, prefix", []string{`s={"type"`}, true}, {"away, json", []string{"s=json:/type=state&/entity"}, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			cfg := conf(states(c.rules...), grace(time.Hour))
			cfg.Store = replay.NewStore(1<<30, nil)
			seat := &seat{s: session.New(cfg, 1, nil)}
			seat.a = seat.s.AttachFirst(1, session.Pass{Gen: 1, Token: "token", Skips: true})
			seat.write(1)
			seat.ack(1)
			if c.away {
				seat.s.Disconnected(1, seat.a, "dropped")
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				seat.down(session.Time(i), message)
				if !c.away && seat.came%10 == 0 {
					seat.ack(session.Time(i))
				}
			}
		})
	}
}

// BenchmarkUp is a message of the client's to the game server, among them now and then one that it repeats.
func BenchmarkUp(b *testing.B) {
	for _, mode := range []session.KeepaliveMode{session.KeepaliveOff, session.KeepaliveHint} {
		b.Run(mode.String(), func(b *testing.B) {
			c := conf()
			c.Keepalive, c.Store, c.Key = mode, replay.NewStore(1<<30, nil), func() [4]byte { return [4]byte{1, 2, 3, 4} }
			s := session.New(c, 1, nil)
			seat := &seat{s: s, a: s.AttachFirst(1, session.Pass{Gen: 1, Token: "token"})}
			payload, read := make([]byte, 64), make([]byte, 128)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				now := session.Time(i) * session.Time(50*time.Millisecond)
				binary.LittleEndian.PutUint64(payload, uint64(i)*min(uint64(i%100), 1))
				s.Read(now, seat.a, frame.AppendMasked(read[:0], frame.Binary, [4]byte{5, 6, 7, byte(i)}, payload))
				n := 0
				seat.out = s.Out(now, s.Upstream(), seat.out[:0])
				for _, p := range seat.out {
					n += len(p)
				}
				s.Wrote(now, s.Upstream(), n, false)
				seat.write(now)
			}
		})
	}
}
