//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"reseat/gateway/internal/test/harness/process"
)

// A counting is the counting game of docs/games with what stands before it: durable sessions for which
// the game server itself applies every message once and in order.
type counting struct {
	*process.Counting
	tap  net.Listener
	seen func(session string)

	mu      sync.Mutex
	reports map[string]process.Report
	fetched time.Time
}

// startCounting starts the game with a message to each session every tick milliseconds.
func startCounting(bin, dir string, tick int, seen func(session string)) (*counting, error) {
	game, err := process.StartCounting(bin, dir, tick)
	if err != nil {
		return nil, err
	}
	c := &counting{Counting: game, seen: seen}
	if c.tap, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		game.Kill()
		return nil, err
	}
	go c.serve()
	return c, nil
}

func (c *counting) close() {
	c.Kill()
	c.tap.Close()
}

// serve alters nothing: what has reached the tap reaches the game server, even if the gateway has died
// since.
func (c *counting) serve() {
	for {
		conn, err := c.tap.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil { // else no descriptors, for now
			go c.pass(conn)
		}
	}
}

func (c *counting) pass(conn net.Conn) {
	defer conn.Close()
	var head bytes.Buffer
	req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(conn, &head)))
	if err != nil {
		return // and the game server sees no connection that has no handshake
	}
	c.seen(req.Header.Get("Reseat-Session"))
	g, err := net.Dial("tcp", c.Addr)
	if err != nil {
		return
	}
	defer g.Close()
	g.Write(head.Bytes())
	var up sync.WaitGroup
	up.Go(func() { copyAll(g, conn) })
	copyAll(conn, g)
	io.Copy(io.Discard, g) // the gateway is not there any more
	up.Wait()
}

// copyAll passes on what from says, to its end. It does without splice(2), whose pipes would take four descriptors
// more for each session.
func copyAll(to, from net.Conn) {
	io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 4096))
	to.(*net.TCPConn).CloseWrite()
}

// report returns what the game says of a session, or said of it at most that long ago: there are many who ask.
func (c *counting) report(session string, ago time.Duration) process.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.fetched) > ago {
		c.reports, c.fetched = c.Reports(), time.Now()
	}
	return c.reports[session]
}

const moment = 200 * time.Millisecond

// directCounting brings a session of the counting game to its end, by bye after everything has arrived but
// what the game goes on to say.
func (p *player) directCounting(ctx context.Context) {
	enough := uint64(p.run.cfg.Messages)
	p.await(ctx, func() bool { return p.madeNow() >= enough && (int(p.cuts.Load()) >= p.budget || p.run.ending()) })
	p.mu.Lock()
	p.mayMake = false
	p.mu.Unlock()
	p.await(ctx, func() bool {
		r := p.run.counting.report(p.sessionID(), moment)
		p.mu.Lock()
		defer p.mu.Unlock()
		return r.Received == p.made && p.acked == p.made && p.received+2 >= r.Sent
	})
	p.askEnd()
	p.bye()
	p.await(ctx, p.isDone)
}

// judgeCounting judges a session of the counting game by the game's report: it has applied every message of the
// client's once and in order. Those of the game are checked as they come.
func (p *player) judgeCounting(r process.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judgeOwners()
	for i, x := range r.Applied {
		if x != int64(i+1) {
			p.faultLocked("the game applied %d as number %d", x, i+1)
			break
		}
	}
	p.run.count.repeats.Add(uint64(r.Repeats))
	whole := r.Received == p.made || p.fell || p.hellos == 1 && r.Received == 0 && p.verdict == "refused"
	if r.Lost > 0 || r.Resyncs > 0 || !whole {
		p.faultLocked("the game has %d messages of %d, lost %d, resyncs %d", r.Received, p.made, r.Lost, r.Resyncs)
	}
	switch {
	case !p.done:
		p.faultLocked("did not end: made %d, acked %d, game has %d; game sent %d, received %d", p.made, p.acked, r.Received, r.Sent, p.received)
	case p.verdict == "refused" && (p.fell || p.code == 4404 && (p.sayBye || r.Received == 0)):
	case p.code != 4000:
		p.faultLocked("the client got %s %d, want 4000", p.verdict, p.code)
	}
}

// route is the route of the counting game.
func (c *counting) route() string {
	return fmt.Sprintf("--route=/%c/*=ws://%s;%s", rules[countingGame].letter, c.tap.Addr(), rules[countingGame].route)
}
