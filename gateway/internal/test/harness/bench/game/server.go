//go:build linux

package game

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/frames"
	"reseat/gateway/internal/test/harness/bench/message"
)

// idle is how long the loop waits when nothing is scheduled.
const idle = int64(time.Second)

// A server is the whole process.
type server struct {
	spec     Spec
	loop     *epoll.Loop
	sessions []*session
	out      *json.Encoder
	ended    bool // end of standard input

	firing bool
	pace   *epoll.Pace
	paused *epoll.Pace // goes on at resume
	since  int64       // when the pause began
	frame  []byte      // the message being built

	deflater *frames.Deflater

	sent, taken uint64
	faults      message.Faults
}

// Serve runs the process: it reads its Spec from standard input, listens, prints its
// address, and obeys further lines until the input ends.
func Serve() error {
	// Byte by byte: what follows the line belongs to the loop.
	line, err := bufio.NewReaderSize(iotest.OneByteReader(os.Stdin), 16).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the spec: %w", err)
	}
	var spec Spec
	if err := json.Unmarshal(line, &spec); err != nil {
		return err
	}
	loop, err := epoll.New()
	if err != nil {
		return err
	}
	s := &server{spec: spec, loop: loop, sessions: make([]*session, spec.Sessions), out: json.NewEncoder(os.Stdout), deflater: frames.NewDeflater()}
	addr, err := loop.Listen(netip.MustParseAddrPort("127.0.0.1:0"), func(c *epoll.Conn) epoll.Owner { return newVisitor(s, c) })
	if err != nil {
		return err
	}
	if err := loop.Watch(0, s.command); err != nil {
		return err
	}
	if err := s.out.Encode(addr); err != nil {
		return fmt.Errorf("say the address: %w", err)
	}
	for !s.ended {
		if err := loop.Wait(s.work()); err != nil {
			return err
		}
	}
	return nil
}

// work sends what is due and returns when more is due.
func (s *server) work() int64 {
	now := epoll.Now()
	s.pace.Run(now, func(i int, _ int64) {
		if c := s.sessions[i]; c != nil {
			c.send(epoll.Now())
		}
	})
	if next, ok := s.pace.Next(); ok {
		return next
	}
	return now + idle
}

// command executes a line of the standard input.
func (s *server) command() {
	var buf [256]byte
	n, err := unix.Read(0, buf[:])
	if n <= 0 {
		s.ended = err == nil || err != unix.EINTR && err != unix.EAGAIN
		return
	}
	switch c := Command(bytes.TrimSpace(buf[:n])); c { // the next one waits for the answer
	case Start:
		if s.spec.Mode == Tick {
			s.pace = epoll.NewPace(epoll.Now(), s.spec.Every, s.spec.Grain, s.spec.Sessions-s.spec.Idle, s.spec.Limit)
		}
		s.fire()
	case Stop:
		s.pace, s.firing = nil, false
	case Pause:
		s.pace, s.paused, s.since, s.firing = nil, s.pace, epoll.Now(), false
	case Resume:
		s.pace, s.paused = s.paused, nil
		s.pace.Shift(epoll.Now() - s.since)
		s.fire()
	case State:
	default:
		s.faults.Say("unknown command %q", c)
	}
	s.out.Encode(Report{Sent: s.sent, Taken: s.taken, Faults: s.faults})
}

// fire begins to send as fast as clients take it, with Fire.
func (s *server) fire() {
	s.firing = s.spec.Mode == Fire
	for _, c := range s.sessions {
		if c != nil && s.firing {
			c.conn.Hungry(true)
		}
	}
}
