//go:build linux

package failover

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A tap stands before the game server, and notes what each handshake says. It alters nothing: what
// has reached it reaches the game server, even if the gateway has died since.
type tap struct {
	ln     net.Listener
	target string

	mu    sync.Mutex
	dials map[string][]dial // by session
	conns map[net.Conn]bool
}

// A dial is a handshake of a gateway's with the game server.
type dial struct {
	at       time.Time
	resumed  string
	epoch    uint64
	up, down string
}

func (d dial) String() string {
	return fmt.Sprintf("epoch %d %q up %s down %s", d.epoch, d.resumed, d.up, d.down)
}

func newTap(target string) (*tap, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &tap{ln: ln, target: target, dials: map[string][]dial{}, conns: map[net.Conn]bool{}}
	go func() {
		for {
			c, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // no descriptors, for now
				continue
			}
			go t.serve(c)
		}
	}()
	return t, nil
}

func (t *tap) serve(c net.Conn) {
	defer c.Close()
	var head bytes.Buffer
	r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &head)))
	if err != nil {
		return
	}
	epoch, _ := strconv.ParseUint(r.Header.Get("Reseat-Epoch"), 10, 64)
	id := r.Header.Get("Reseat-Session")
	t.mu.Lock()
	t.dials[id] = append(t.dials[id], dial{time.Now(), r.Header.Get("Reseat-Resumed"), epoch, r.Header.Get("Reseat-Up-From"), r.Header.Get("Reseat-Down-From")})
	t.mu.Unlock()
	g, err := net.Dial("tcp", t.target)
	if err != nil {
		return
	}
	defer g.Close()
	t.mu.Lock()
	t.conns[g] = true
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.conns, g)
	}()
	if _, err := g.Write(head.Bytes()); err != nil {
		return
	}
	var up sync.WaitGroup
	up.Go(func() { pass(g, c) })
	pass(c, g)
	io.Copy(io.Discard, g) // the gateway is not there any more
	up.Wait()
}

// pass passes on what from says, to its end. It does without splice(2), whose pipes would take four descriptors
// more for each session.
func pass(to, from net.Conn) {
	io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 4096))
	to.(*net.TCPConn).CloseWrite()
}

// of returns the handshakes for a session.
func (t *tap) of(session string) []dial {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]dial(nil), t.dials[session]...)
}

func (t *tap) close() { t.ln.Close() }
