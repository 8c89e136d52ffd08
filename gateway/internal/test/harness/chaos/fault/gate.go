package fault

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Weather is the state of the line from one party to a Gate's target, for all its
// connections at once.
type Weather struct {
	Hold  [2]bool       // nothing passes to near, to far; new connections are not dialled on
	Delay time.Duration // of each piece
	Rate  int           // bytes per second in each direction; 0: unlimited
	Reset bool          // new connections get an RST
}

// String describes the weather.
func (w Weather) String() string {
	switch {
	case w.Reset:
		return "resets"
	case w.Hold[ToNear] && w.Hold[ToFar]:
		return "black hole"
	case w.Hold[ToNear]:
		return "black hole for answers"
	case w.Hold[ToFar]:
		return "black hole for requests"
	case w.Delay > 0:
		return fmt.Sprintf("%v late", w.Delay)
	case w.Rate > 0:
		return fmt.Sprintf("%d bytes a second", w.Rate)
	}
	return "fair"
}

// Weathers are those that last.
func Weathers(delay time.Duration, rate int) []Weather {
	return []Weather{{Reset: true}, {Hold: [2]bool{true, true}}, {Hold: [2]bool{ToNear: true}}, {Hold: [2]bool{ToFar: true}}, {Delay: delay}, {Rate: rate}}
}

// A Gate is a TCP proxy in front of one process. It knows who connects, so that each line
// to the process has faults of its own.
type Gate struct {
	Addr   string // where it listens, HOST:PORT
	Target string
	from   func(net.Conn) string

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change of the weather
	weather map[string]Weather
	pairs   map[*pair]bool
	ln      net.Listener // nil: connections are refused
	all     sync.WaitGroup
}

type pair struct {
	from      string
	near, far *net.TCPConn
}

// NewGate returns a gate that refuses connections until Open. from names the party that a connection
// comes from.
func NewGate(addr, target string, from func(net.Conn) string) *Gate {
	return &Gate{Addr: addr, Target: target, from: from, changed: make(chan struct{}), weather: map[string]Weather{}, pairs: map[*pair]bool{}}
}

// Open starts to listen.
func (g *Gate) Open() error {
	ln, err := net.Listen("tcp", g.Addr)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ln = ln
	g.all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			g.all.Go(func() { g.serve(c.(*net.TCPConn)) })
		}
	})
	return nil
}

// Refuse makes the machine refuse connections, until Open.
func (g *Gate) Refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ln != nil {
		g.ln.Close()
	}
	g.ln = nil
}

// Close ends everything.
func (g *Gate) Close() {
	g.Refuse()
	g.mu.Lock()
	clear(g.weather)
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
	g.Cut("", false)
	g.all.Wait()
}

// Set changes the weather of the line from a party.
func (g *Gate) Set(from string, w Weather) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.weather[from] = w
	close(g.changed)
	g.changed = make(chan struct{})
}

// Cut ends all connections from a party, "" for all, with an RST, or with an end of
// stream to both sides.
func (g *Gate) Cut(from string, gently bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.pairs {
		switch {
		case from != "" && p.from != from:
		case gently:
			p.near.CloseWrite()
			p.far.CloseWrite()
		default:
			reset(p.near)
			reset(p.far)
		}
	}
}

func (g *Gate) now(from string) (Weather, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.weather[from], g.changed
}

// serve forwards one connection.
func (g *Gate) serve(near *net.TCPConn) {
	defer near.Close()
	p := &pair{from: g.from(near), near: near}
	w, _ := g.now(p.from)
	if w.Reset {
		reset(near)
		return
	}
	g.wait(p.from, ToFar) // the SYN is lost
	far, err := net.DialTimeout("tcp", g.Target, 5*time.Second)
	if err != nil {
		reset(near)
		return
	}
	defer far.Close()
	p.far = far.(*net.TCPConn)
	g.mu.Lock()
	g.pairs[p] = true
	refuses := g.ln == nil
	g.mu.Unlock()
	if refuses { // it was closed meanwhile
		g.Cut(p.from, false)
	}
	var both sync.WaitGroup
	both.Go(func() { g.pass(p, ToFar, p.near, p.far) })
	both.Go(func() { g.pass(p, ToNear, p.far, p.near) })
	both.Wait()
	g.mu.Lock()
	delete(g.pairs, p)
	g.mu.Unlock()
}

// wait returns the weather once it lets something pass.
func (g *Gate) wait(from string, way int) Weather {
	for {
		w, changed := g.now(from)
		if !w.Hold[way] {
			return w
		}
		<-changed
	}
}

// pass copies one direction until it ends.
func (g *Gate) pass(p *pair, way int, from, to *net.TCPConn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		w := g.wait(p.from, way)
		for rest := b[:n]; len(rest) > 0; {
			piece := rest
			if w.Rate > 0 {
				piece = rest[:min(len(rest), max(1, w.Rate/20))]
				time.Sleep(time.Duration(len(piece)) * time.Second / time.Duration(w.Rate))
			}
			time.Sleep(w.Delay)
			if _, err := to.Write(piece); err != nil {
				from.Close()
				return
			}
			rest = rest[len(piece):]
			w, _ = g.now(p.from)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			to.CloseWrite()
			return
		default:
			reset(to)
			return
		}
	}
}
