//go:build linux

package load

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/frames"
	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/message"
)

// With this argument the test's own binary is the game server.
const asGame = "serve-game"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asGame {
		spec, err := game.ReadSpec()
		if err == nil {
			err = game.Serve(spec)
		}
		if err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const limit = 20 * time.Second

var (
	down = message.Kind{Way: message.Down, Size: 300}
	up   = message.Kind{Way: message.Up, Size: 64}
)

// between puts an interceptor in front of a game server: change may change what goes
// down to the clients.
func between(t *testing.T, spec game.Spec, set Setup, change func([]byte) []byte) *Client {
	t.Helper()
	g, err := game.Start([]string{os.Args[0], asGame}, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	set.Game, set.Target, set.Sessions, set.InFlight = g, g.Addr, spec.Sessions, 8
	set.Down, set.Up = spec.Down, spec.Up
	c, err := New(set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if change != nil {
		set.Target = listen(t, c.loop, g.Addr, change)
		c.Target = set.Target
	}
	return c
}

// listen forwards connections on the clients' own loop.
func listen(t *testing.T, l *epoll.Loop, to netip.AddrPort, change func([]byte) []byte) netip.AddrPort {
	t.Helper()
	addr, err := l.Listen(netip.MustParseAddrPort("127.0.0.1:0"), func(c *epoll.Conn) epoll.Owner {
		near, far := &end{conn: c}, new(end)
		near.other, far.other, far.change = far, near, change
		conn, err := l.Dial(to, far)
		if err != nil {
			t.Error(err)
		}
		far.conn = conn
		return near
	})
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

type end struct {
	conn   *epoll.Conn
	other  *end
	open   bool
	early  []byte
	past   bool // the handshake has passed
	change func([]byte) []byte
}

func (e *end) Connected() {
	e.open = true
	e.conn.Write(e.early)
}

func (e *end) Data(b []byte) {
	if e.change != nil && e.past {
		b = e.change(b)
	}
	e.past = true
	if e.other.change != nil && !e.other.open {
		e.other.early = append(e.other.early, b...)
		return
	}
	e.other.conn.Write(b)
}

func (e *end) Room()      {}
func (e *end) Gone(error) { e.other.conn.Close() }

func echo(n int) (game.Spec, Setup) {
	return game.Spec{Mode: game.Echo, Sessions: n, Down: down, Up: up}, Setup{Echo: true, Once: true}
}

// run connects, sends and stops.
func run(c *Client) error {
	if err := c.Connect(limit); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	_, err := c.Stop(limit)
	return err
}

func TestEveryEchoArrives(t *testing.T) {
	spec, set := echo(50)
	c := between(t, spec, set, nil)
	if err := run(c); err != nil {
		t.Fatal(err, c.Faults)
	}
	if c.Received != 50 || c.Written != 50 {
		t.Errorf("%d came, %d went", c.Received, c.Written)
	}
}

func TestTicksArriveBothWaysAndInText(t *testing.T) {
	for _, text := range []bool{false, true} {
		spec := game.Spec{Mode: game.Tick, Sessions: 20, Down: down, Up: up, Every: 10 * time.Millisecond, Limit: 5}
		spec.Down.Text, spec.Up.Text = text, text
		c := between(t, spec, Setup{Every: 10 * time.Millisecond}, nil)
		c.Measuring = true
		if err := c.Connect(limit); err != nil {
			t.Fatal(err)
		}
		c.Start()
		if err := c.Until(func() string { return "too few" }, limit, func() bool { return c.Received == 100 && c.Written >= 40 }); err != nil {
			t.Fatal(err)
		}
		r, err := c.Stop(limit)
		if err != nil || r.Taken != c.Written || r.Sent != 100 || c.Latency.N() != 100 {
			t.Errorf("text %t: %v, %+v, %d written", text, err, r, c.Written)
		}
	}
}

func TestFirehoseStopsAtAMessagesEnd(t *testing.T) {
	spec := game.Spec{Mode: game.Fire, Sessions: 3, Down: message.Kind{Way: message.Down, Size: 1024}, Up: up}
	c := between(t, spec, Setup{}, nil)
	c.Connect(limit)
	c.Start()
	if err := c.Until(func() string { return "too few" }, limit, func() bool { return c.Received > 5000 }); err != nil {
		t.Fatal(err)
	}
	r, err := c.Stop(limit)
	if err != nil || r.Sent != c.Received || r.Sent%32 != 0 {
		t.Errorf("%v: %d sent, %d came", err, r.Sent, c.Received)
	}
}

func TestStormServesEachConnectionOnce(t *testing.T) {
	spec, _ := echo(100)
	c := between(t, spec, Setup{Storm: true}, nil)
	if err := c.All(limit); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stop(limit); err != nil || c.Finished != 100 || c.Received != 100 {
		t.Errorf("%v: %d finished, %d came", err, c.Finished, c.Received)
	}
}

// A proxy that damages, loses or duplicates one message of thousands fails the run.
func TestOneFaultFailsTheRun(t *testing.T) {
	size := len(frames.Begin(nil, frames.Binary, down.Size)) + down.Size
	for name, tt := range map[string]struct {
		change func([]byte) []byte
		want   func(message.Faults) bool
	}{
		"a byte": {func(b []byte) []byte {
			b[size-1] ^= 1
			return b
		}, func(f message.Faults) bool { return f.Wrong == 1 }},
		"a message lost": {func(b []byte) []byte { return b[size:] }, func(f message.Faults) bool { return f.Gap > 0 }},
		"a message doubled": {func(b []byte) []byte { return append(b[:size:size], b...) },
			func(f message.Faults) bool { return f.Double > 0 }},
		"a close": {func([]byte) []byte { return frames.Append(nil, frames.Close, []byte{3, 232}, nil) },
			func(f message.Faults) bool { return f.Dropped > 0 }},
	} {
		calls := 0
		spec, set := echo(20)
		set.Once = false
		c := between(t, spec, set, func(b []byte) []byte {
			if calls++; calls == 500 {
				return tt.change(b)
			}
			return b
		})
		if err := c.Connect(limit); err != nil {
			t.Fatal(err)
		}
		c.Start()
		err := c.Until(func() string { return "not noticed" }, limit, func() bool { return c.Received > 2000 })
		if err == nil {
			_, err = c.Stop(200 * time.Millisecond)
		}
		if !errors.Is(err, ErrFaults) || !tt.want(c.Faults) {
			t.Errorf("%s: %v, %v", name, err, c.Faults)
		}
	}
}

// A message that never arrives is detected at the end, when both ends are compared.
func TestLastMessageLostIsMissing(t *testing.T) {
	spec, set := echo(1)
	c := between(t, spec, set, func([]byte) []byte { return nil })
	if err := run2(c); !errors.Is(err, ErrFaults) || c.Faults.Gap == 0 {
		t.Errorf("%v, %v", err, c.Faults)
	}
}

func run2(c *Client) error {
	if err := c.Connect(limit); err != nil {
		return err
	}
	c.Start()
	_, err := c.Stop(100 * time.Millisecond)
	return err
}

func TestDroppedConnectionFailsTheRun(t *testing.T) {
	spec, set := echo(4)
	c := between(t, spec, set, func(b []byte) []byte { return b })
	if err := c.Connect(limit); err != nil {
		t.Fatal(err)
	}
	c.Game.Stop()
	err := c.Until(func() string { return "nobody noticed" }, limit, func() bool { return false })
	if !errors.Is(err, ErrFaults) || c.Faults.Dropped == 0 {
		t.Errorf("%v, %v", err, c.Faults)
	}
}

func TestRefusedHandshakeFailsTheRun(t *testing.T) {
	spec, set := echo(2)
	c := between(t, spec, set, nil)
	c.sessions[1].id = 77 // which does not exist
	if err := c.Connect(limit); !errors.Is(err, ErrFaults) || c.Faults.Refused == 0 {
		t.Errorf("%v, %v", err, c.Faults)
	}
}

func TestTimeoutReportsTheProgress(t *testing.T) {
	spec, set := echo(2)
	c := between(t, spec, set, nil)
	err := c.Until(func() string { return "3 of 4" }, 10*time.Millisecond, func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "3 of 4 in 10ms") {
		t.Error(err)
	}
}
