package fault

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const request = "GET /s/1/0 HTTP/1.1\r\n"

// connect returns both ends of a connection through a proxy with one plan.
func connect(t *testing.T, plan Plan) (near, far net.Conn) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Target: server.Addr().String(), Plan: func(string) Plan { return plan }, Struck: func(string, Plan) {}}
	p.Serve(front)
	if near, err = net.Dial("tcp", front.Addr().String()); err != nil {
		t.Fatal(err)
	}
	io.WriteString(near, request)
	if far, err = server.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		near.Close()
		far.Close()
		server.Close()
		p.Close()
	})
	for _, c := range []net.Conn{near, far} {
		c.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return near, far
}

// how reads a connection to its end, and returns what arrived and how it ended.
func how(c net.Conn) (string, string) {
	b, err := io.ReadAll(c)
	switch {
	case err == nil:
		return string(b), "end"
	case errors.Is(err, syscall.ECONNRESET):
		return string(b), "reset"
	}
	return string(b), err.Error()
}

// Each fault has the effect of its name at both ends, at the byte of its plan.
func TestFaultsHaveTheEffectOfTheirNames(t *testing.T) {
	for _, c := range []struct {
		kind      Kind
		near, far string
	}{
		{Reset, "reset", "reset"},
		{FinToFar, "reset", "end"}, // the near side: after Hold
		{FinToNear, "end", "reset"},
		{DeafFar, "reset", "reset"}, // the far side: after Hold
		{DeafNear, "reset", "reset"},
		{Silence, "reset", "reset"},
		{SilentToFar, "reset", "reset"},
		{SilentToNear, "reset", "reset"},
		{SilenceEnds, "reset", "reset"},
	} {
		near, far := connect(t, Plan{Kind: c.kind, Up: true, After: len(request) + 3, Hold: 50 * time.Millisecond})
		io.WriteString(near, "123456789")
		got, end := how(far)
		if end != c.far || c.far == "end" && got != request+"123" {
			t.Errorf("%s: the far side got %q and %s, want %s", c.kind, got, end, c.far)
		}
		if _, end := how(near); end != c.near {
			t.Errorf("%s: the near side got %s, want %s", c.kind, end, c.near)
		}
	}
}

// A silent line swallows data, or delays it until the silence ends.
func TestSilenceMayBeOneWayOrTemporary(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		first string // what arrives of 123456789 before the answer is sent,
		up    string // and in total
		down  string // and of the answer
	}{
		{SilentToFar, "123", "123", "answer"},
		{SilentToNear, "123456789", "123456789", ""},
		{SilenceEnds, "123", "123456789", "answer"},
	} {
		near, far := connect(t, Plan{Kind: c.kind, Up: true, After: len(request) + 3, Hold: 300 * time.Millisecond})
		io.WriteString(near, "123456789")
		b := make([]byte, len(request+c.first))
		if _, err := io.ReadFull(far, b); err != nil {
			t.Fatalf("%s: %v", c.kind, err)
		}
		io.WriteString(far, "answer")
		up, down := make(chan string), make(chan string)
		go func() { got, _ := how(far); up <- got }()
		go func() { got, _ := how(near); down <- got }()
		if got := c.first + <-up; got != c.up {
			t.Errorf("%s: the far side got %q, want %q", c.kind, got, c.up)
		}
		if got := <-down; got != c.down {
			t.Errorf("%s: the near side got %q, want %q", c.kind, got, c.down)
		}
	}
}

func TestEachKindIsDrawnAndPlansDependOnTheSeed(t *testing.T) {
	a, b, kinds := rand.New(rand.NewPCG(1, 0)), rand.New(rand.NewPCG(1, 0)), map[Kind]bool{}
	for i := range 100 {
		cutting, calm := Cutting(a, time.Second), Calm(a)
		if cutting != Cutting(b, time.Second) || calm != Calm(b) {
			t.Fatalf("plan %d differs", i)
		}
		kinds[cutting.Kind], kinds[calm.Kind] = true, true
	}
	if len(kinds) != int(Kinds) {
		t.Errorf("drawn are %v, want all %d kinds", kinds, Kinds)
	}
}

// A gate's weather is that of one party's line, and a black hole loses nothing that a short one would
// not.
func TestGateSpoilsTheLineOfOneParty(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { // echo
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); io.Copy(c, c) }()
		}
	}()
	var from atomic.Value
	from.Store("")
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reserved.Close()
	g := NewGate(reserved.Addr().String(), server.Addr().String(), func(net.Conn) string { return from.Load().(string) })
	dial := func(party string) (net.Conn, error) {
		from.Store(party)
		c, err := net.Dial("tcp", g.Addr)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(c, "x")
		_, err = io.ReadFull(c, make([]byte, 1))
		return c, err
	}
	if _, err := dial("a"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("before it is open: %v", err)
	}
	if err := g.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Close()
		server.Close()
	})
	a, err := dial("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, hold := range [][2]bool{{true, true}, {ToNear: true}, {ToFar: true}} {
		g.Set("a", Weather{Hold: hold})
		if _, err := dial("b"); err != nil {
			t.Errorf("%v: the line of another: %v", hold, err)
		}
		io.WriteString(a, "held")
		a.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := a.Read(make([]byte, 4)); err == nil {
			t.Errorf("%v: %d bytes arrived", hold, n)
		}
		a.SetReadDeadline(time.Now().Add(20 * time.Second))
		g.Set("a", Weather{})
		if _, err := io.ReadFull(a, make([]byte, 4)); err != nil {
			t.Errorf("%v: what was held: %v", hold, err)
		}
	}
	g.Set("a", Weather{Reset: true})
	if _, err := dial("a"); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("resets: %v", err)
	}
	g.Cut("a", false)
	if _, end := how(a); end != "reset" {
		t.Errorf("a cut line ends by %s", end)
	}
}
