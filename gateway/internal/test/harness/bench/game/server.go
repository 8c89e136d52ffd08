//go:build linux

package game

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
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
	input    []byte
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

// Serve runs the process: it listens, prints its address, and obeys its standard input
// until that ends.
func Serve(spec Spec) error {
	loop, err := epoll.New()
	if err != nil {
		return err
	}
	s := &server{spec: spec, loop: loop, sessions: make([]*session, spec.Sessions), out: json.NewEncoder(os.Stdout), deflater: frames.NewDeflater()}
	addr, err := loop.Listen(netip.MustParseAddrPort("127.0.0.1:0"), s.accept)
	if err != nil {
		return err
	}
	for host, i := addr.Addr(), 1; i < spec.Hosts; i++ {
		host = host.Next()
		if _, err := loop.Listen(netip.AddrPortFrom(host, addr.Port()), s.accept); err != nil {
			return err
		}
	}
	if err := loop.Watch(0, s.command); err != nil {
		return err
	}
	if err := s.out.Encode(greeting{addr.String()}); err != nil {
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

func (s *server) accept(c *epoll.Conn) epoll.Owner {
	return newVisitor(s, c)
}

// command reads the standard input and executes each line.
func (s *server) command() {
	var buf [256]byte
	n, err := unix.Read(0, buf[:])
	if n <= 0 {
		s.ended = err == nil || err != unix.EINTR && err != unix.EAGAIN
		return
	}
	s.input = append(s.input, buf[:n]...)
	for {
		line, rest, ok := bytes.Cut(s.input, []byte("\n"))
		if !ok {
			return
		}
		s.do(command(line))
		s.input = append(s.input[:0], rest...)
	}
}

func (s *server) do(c command) {
	switch c {
	case cmdStart:
		s.start()
	case cmdStop:
		s.pace, s.paused, s.firing = nil, nil, false
	case cmdPause:
		s.pace, s.paused, s.since, s.firing = nil, s.pace, epoll.Now(), false
	case cmdResume:
		s.resume()
	case cmdReport:
	default:
		s.faults.Say("unknown command %q", c)
	}
	s.out.Encode(Report{Sent: s.sent, Taken: s.taken, Faults: s.faults})
}

func (s *server) start() {
	switch s.spec.Mode {
	case Tick:
		s.pace = epoll.NewPace(epoll.Now(), s.spec.Every, s.spec.Grain, s.spec.Sessions-s.spec.Idle, s.spec.Limit)
	case Fire:
		s.fire()
	}
}

func (s *server) fire() {
	s.firing = true
	for _, c := range s.sessions {
		if c != nil {
			c.conn.Hungry(true)
		}
	}
}

// resume goes on after a pause, with the same session.
func (s *server) resume() {
	s.pace, s.paused = s.paused, nil
	s.pace.Shift(epoll.Now() - s.since)
	if s.spec.Mode == Fire {
		s.fire()
	}
}

// ReadSpec reads a Spec from the first line of standard input. It consumes no byte more
// than that line.
func ReadSpec() (spec Spec, err error) {
	line, err := readLine(os.Stdin)
	if err != nil {
		return spec, fmt.Errorf("read the spec: %w", err)
	}
	return spec, json.Unmarshal(line, &spec)
}

func readLine(f *os.File) ([]byte, error) {
	return bufio.NewReaderSize(oneByte{f}, 16).ReadBytes('\n')
}

// oneByte keeps a bufio.Reader from reading ahead.
type oneByte struct{ f *os.File }

func (o oneByte) Read(p []byte) (int, error) { return o.f.Read(p[:1]) }
