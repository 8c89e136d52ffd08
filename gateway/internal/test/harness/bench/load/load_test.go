//go:build linux

package load

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"reseat/gateway"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/message"
	"reseat/gateway/policy"
	"reseat/tokens"
	"reseat/upstream"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == game.Program {
		if game.Serve() != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const limit = 30 * time.Second

var (
	down      = message.Kind{Way: message.Down, Size: 300}
	up        = message.Kind{Way: message.Up, Size: 64}
	text      = message.Kind{Way: message.Up, Size: 48, Text: true}
	gameState = message.Kind{Way: message.Down, Size: 512, Text: true, State: true}
)

// clients makes clients of a game server, whose messages to them pass through change; nil
// changes nothing.
func clients(t *testing.T, spec game.Spec, set Setup, change func([]byte) []byte) *Client {
	t.Helper()
	if spec.Down.Size == 0 {
		spec.Down, spec.Up = down, up
	}
	g, err := game.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	set.Game, set.Targets, set.Sessions, set.InFlight, set.Down, set.Up = g, []netip.AddrPort{g.Addr}, spec.Sessions, 8, spec.Down, spec.Up
	c, err := New(set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if change == nil {
		return c
	}
	c.Targets[0], err = c.loop.Listen(netip.MustParseAddrPort("127.0.0.1:0"), func(near *epoll.Conn) epoll.Owner {
		far := &end{to: near, change: change}
		conn, err := c.loop.Dial(netip.Addr{}, g.Addr, far)
		if err != nil {
			t.Error(err)
		}
		return &end{to: conn}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An end is one of the two connections of an interceptor.
type end struct {
	to     *epoll.Conn
	past   bool // the handshake has passed
	change func([]byte) []byte
}

func (e *end) Connected() {}
func (e *end) Room()      {}
func (e *end) Gone(error) { e.to.Close() }
func (e *end) Data(b []byte) {
	if e.change != nil && e.past {
		b = e.change(b)
	}
	e.past = true
	e.to.Write(b)
}

func begin(t *testing.T, c *Client) {
	t.Helper()
	if err := c.Connect(limit); err != nil {
		t.Fatal(err, c.Faults)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
}

// receive serves the clients until n more messages have come.
func receive(t *testing.T, c *Client, n uint64) {
	t.Helper()
	want := c.Received + n
	if err := c.Until(func() string { return "too few messages" }, limit, func() bool { return c.Received >= want }); err != nil {
		t.Fatal(err, c.Faults)
	}
}

func TestNothingIsLostAndNothingIsSentInAPause(t *testing.T) {
	const every = 5 * time.Millisecond
	for name, tt := range map[string]struct {
		spec game.Spec
		set  Setup
	}{
		"tick":     {game.Spec{Mode: game.Tick, Every: every}, Setup{Every: every}},
		"deflate":  {game.Spec{Mode: game.Tick, Every: every, Down: gameState, Up: text}, Setup{Every: every, Deflate: true}},
		"one busy": {game.Spec{Mode: game.Tick, Every: every, Idle: 19}, Setup{}},
		"echo":     {game.Spec{Mode: game.Echo}, Setup{Echo: true}},
		"fire":     {game.Spec{Mode: game.Fire, Down: message.Kind{Way: message.Down, Size: 1024}, Up: up}, Setup{}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.spec.Sessions = 20
			c := clients(t, tt.spec, tt.set, nil)
			begin(t, c)
			for range 2 {
				receive(t, c, 100)
				r, err := c.Pause(limit)
				if err != nil || r.Sent != c.Received || r.Taken != c.Written {
					t.Fatalf("at a pause: %v, %d of %d came, %d of %d went", err, c.Received, r.Sent, r.Taken, c.Written)
				}
				received, written := c.Received, c.Written
				if err := c.Run(50 * time.Millisecond); err != nil || c.Received != received || c.Written != written {
					t.Fatalf("%v, %d came and %d went in the pause", err, c.Received-received, c.Written-written)
				}
				if err := c.Resume(); err != nil {
					t.Fatal(err)
				}
			}
			receive(t, c, 100)
			if r, err := c.Stop(limit); err != nil || r.Sent != c.Received {
				t.Errorf("%v, %d of %d came", err, c.Received, r.Sent)
			}
			if plain := int64(c.Received) * int64(c.Down.Size); (c.Bytes < plain*3/4) != c.Deflate {
				t.Errorf("%d bytes of messages came in %d", plain, c.Bytes)
			}
		})
	}
}

func TestStormServesEachConnectionOnce(t *testing.T) {
	c := clients(t, game.Spec{Mode: game.Echo, Sessions: 100}, Setup{Storm: true}, nil)
	if err := c.All(limit); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stop(limit); err != nil || c.Finished != 100 || c.Received != 100 {
		t.Errorf("%v, %d finished, %d came; want 100", err, c.Finished, c.Received)
	}
}

func TestOneFaultFailsTheRun(t *testing.T) {
	size := len(frame.AppendHeader(nil, frame.Binary, true, down.Size)) + down.Size
	for name, tt := range map[string]struct {
		change func([]byte) []byte
		want   string
	}{
		"a byte":            {func(b []byte) []byte { b[size-1] ^= 1; return b }, "1 wrong"},
		"a message doubled": {func(b []byte) []byte { return append(b[:size:size], b...) }, "1 doubled"},
		"a message lost":    {func(b []byte) []byte { return b[size:] }, "1 missing"},
		"a close":           {func([]byte) []byte { return frame.Append(nil, frame.Close, []byte{3, 232}) }, "1 dropped"},
		"a masked frame":    {func([]byte) []byte { return frame.AppendMasked(nil, frame.Binary, [4]byte{1}, nil) }, "1 wrong"},
	} {
		calls := 0
		c := clients(t, game.Spec{Mode: game.Echo, Sessions: 20}, Setup{Echo: true}, func(b []byte) []byte {
			if calls++; calls == 500 {
				return tt.change(b)
			}
			return b
		})
		begin(t, c)
		err := c.Until(func() string { return "not noticed" }, limit, func() bool { return c.Received > 2000 })
		if err == nil { // a lost message is missing at the end
			_, err = c.Stop(200 * time.Millisecond)
		}
		if !errors.Is(err, ErrFaults) || !strings.Contains(c.Faults.String(), tt.want) {
			t.Errorf("%s: %v, %v; want %s", name, err, c.Faults, tt.want)
		}
	}
}

// Also of clients beside others: at their next order.
func TestLostConnectionFailsTheRun(t *testing.T) {
	spec := game.Spec{Mode: game.Echo, Sessions: 4}
	c := clients(t, spec, Setup{}, nil)
	set := c.Setup
	set.First, set.Sessions, c.Setup.Sessions, c.sessions = 2, 2, 2, c.sessions[:2]
	beside, err := NewBeside(set)
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	connect := func(c *Client) error { return c.Connect(limit) }
	if err := <-beside.Do(connect); err != nil {
		t.Fatal(err)
	}
	begin(t, c)
	c.Game.Stop()
	err = c.Until(func() string { return "not noticed" }, limit, func() bool { return false })
	if !errors.Is(err, ErrFaults) || c.Faults.Dropped == 0 {
		t.Errorf("dropped: %v, %v", err, c.Faults)
	}
	err = nil
	for end := time.Now().Add(limit); err == nil && time.Now().Before(end); { // the connections are dropped soon
		err = <-beside.Do(connect)
	}
	if !errors.Is(err, ErrFaults) {
		t.Errorf("dropped beside: %v, want %v", err, ErrFaults)
	}
	refused := clients(t, spec, Setup{}, nil)
	refused.sessions[1].id = 77 // which does not exist
	if err := refused.Connect(limit); !errors.Is(err, ErrFaults) || refused.Faults.Refused == 0 {
		t.Errorf("refused: %v, %v", err, refused.Faults)
	}
}

// The real gateway enforces the window and ends sessions that do not ack.
func TestSessionsResumeAtAGateway(t *testing.T) {
	const every = 2 * time.Millisecond
	c := clients(t, game.Spec{Mode: game.Tick, Sessions: 20, Every: every}, Setup{Resumable: true, Every: every}, nil)
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := policy.Policy{Grace: limit, Heartbeat: limit, DialTimeout: limit, BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20}
	gw, err := gateway.New(gateway.Config{
		Routes:  []policy.Route{{Pattern: "/*", Upstream: upstream.Target{URL: &url.URL{Scheme: "ws", Host: c.Game.Addr.String()}}, Policy: p}},
		Default: p, Keys: keys, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer gw.Close()
	server := httptest.NewServer(gw)
	defer server.Close()
	c.Targets[0] = netip.MustParseAddrPort(strings.TrimPrefix(server.URL, "http://"))
	begin(t, c)
	for range 3 {
		receive(t, c, 20*ackMessages) // each session acks
		c.Cut()
		if err := c.Back(limit); err != nil {
			t.Fatal(err, c.Faults)
		}
		if _, err := c.Pause(limit); err != nil {
			t.Fatal(err, c.Faults)
		}
		if err := c.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := c.Stop(limit); err != nil || r.Taken != c.made || c.Resumes.N() != 4*20 {
		t.Errorf("%v, %d of %d went, %d hellos of 20 sessions", err, r.Taken, c.made, c.Resumes.N())
	}
}

// An ack is due within a second, and as much later as a pause is long.
func TestAckIsDueWithinASecond(t *testing.T) {
	c, err := New(Setup{Down: down, Sessions: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := &c.sessions[0]
	c.now, c.paused = 1e9, 1
	s.tookIn()
	due, ok := c.owing.next()
	if !ok || due <= 1e9 || due > 2e9 {
		t.Errorf("due at %d, %t; the message came at %d", due, ok, c.now)
	}
	c.unpause(1 + 7e9)
	if now, ok := c.owing.next(); !ok || now != due+7e9 {
		t.Errorf("due %v after what was due, want 7s", time.Duration(now-due))
	}
	s.tookIn()
	s.ack()
	if _, ok := c.owing.next(); ok || s.v1.owed != 0 || !bytes.Contains(c.out, []byte{0x81, 0x86}) {
		t.Errorf("%d messages are owed after an ack, % x was sent", s.v1.owed, c.out)
	}
}
