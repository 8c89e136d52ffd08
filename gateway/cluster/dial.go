package cluster

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// This file connects to other nodes.

const (
	askTime = time.Second
	// idleConns connections to a node are kept for the next request: a drain makes as many at a time.
	idleConns = 32
	// refusedEvery limits the log lines about one address with other keys.
	refusedEvery = time.Minute
	// refusedKept bounds how many such addresses are remembered.
	refusedKept = 64
)

// HelloPath is the path at a node's listener that says which node it is.
const HelloPath = "/node/v1/hello"

// A Hello is the answer at HelloPath.
type Hello struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Cluster string    `json:"cluster"`
	Version string    `json:"version"`
	Level   int       `json:"level"`
	Formats []int     `json:"formats"`
	Time    time.Time `json:"time"`
}

// Hello describes this node to others.
func (c *Cluster) Hello() Hello {
	return Hello{ID: c.ID(), Name: c.cfg.NodeName, Cluster: c.cfg.Name, Version: c.cfg.Version, Level: Level, Formats: c.cfg.Formats, Time: time.Now().UTC()}
}

// Dial returns a TLS connection to a node's --node-listen. Both sides are verified, and the node has
// this id. The error is ErrUnknown, ErrGone, ErrSilent, ErrOtherNode, or that of the connection.
//
// The kernel of a process that stands still goes on taking connections. So a node that is not heard is
// asked for an answer first, once for all, and a judgement ends the connections being made: their
// clients get a retry delay before they give up by themselves.
func (c *Cluster) Dial(ctx context.Context, id string) (net.Conn, error) {
	w, err := c.way(ctx, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.reach, cancel)()
	conn, err := c.connect(ctx, id, w.address)
	if err != nil && w.reach.Err() != nil {
		err = ErrSilent
	}
	return conn, err
}

// Reach returns a context that ends when a node is judged silent or gone, or this one stops. The errors are
// those of Dial for a node that is not dialled.
func (c *Cluster) Reach(ctx context.Context, id string) (context.Context, error) {
	w, err := c.way(ctx, id)
	return w.reach, err
}

// A way leads to a node.
type way struct {
	address string
	reach   context.Context
}

func (c *Cluster) way(ctx context.Context, id string) (way, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[id]
	if p != nil && p.silent && p.gone == "" {
		c.mu.Unlock()
		j := c.Judge(ctx, id)
		c.mu.Lock()
		if j.Verdict != Alive {
			return way{}, ErrSilent
		}
		p = c.peers[id]
	}
	switch {
	case p == nil:
		return way{}, ErrUnknown
	case p.gone != "":
		return way{}, ErrGone
	}
	if p.reach == nil {
		p.reach, p.cut = context.WithCancel(c.ctx)
	}
	return way{p.Address, p.reach}, nil
}

func (c *Cluster) connect(ctx context.Context, id, address string) (net.Conn, error) {
	raw, err := c.cfg.Dialer(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, c.cfg.Identity.client(id))
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		if OtherKeys(err) {
			c.Refused(address, err)
		}
		return nil, handshakeError(err)
	}
	return conn, nil
}

// cutDials ends the connections being made.
func (p *peer) cutDials() {
	if p.reach != nil {
		p.cut()
		p.reach, p.cut = nil, nil
	}
}

// Refused notes in the log that a node has other keys.
func (c *Cluster) Refused(address string, err error) {
	now := time.Now()
	c.mu.Lock()
	again := now.Sub(c.refused[address]) < refusedEvery
	if !again {
		if len(c.refused) > refusedKept {
			clear(c.refused)
		}
		c.refused[address] = now
	}
	c.mu.Unlock()
	if !again {
		c.cfg.Log.Error("node.refused", "address", address, "why", "other keys", "err", err)
	}
}

// Transport makes requests to nodes: a URL's host is a node's id.
func (c *Cluster) Transport() *http.Transport {
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			id, _, _ := net.SplitHostPort(address)
			return c.Dial(ctx, id)
		},
		MaxIdleConnsPerHost: idleConns, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: 5 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
}

// Ask asks which node answers at an address, and waits for a second at most. This node need not have joined.
func (c *Cluster) Ask(ctx context.Context, address string) (Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return c.hello(ctx, address)
}

// hello asks which node answers at an address.
func (c *Cluster) hello(ctx context.Context, address string) (h Hello, err error) {
	conn, err := c.connect(ctx, "", address)
	if err != nil {
		return h, err
	}
	defer conn.Close()
	if until, ok := ctx.Deadline(); ok {
		conn.SetDeadline(until)
	}
	t := &http.Transport{
		DialTLSContext:    func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10,
	}
	defer t.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://node"+HelloPath, nil)
	if err != nil {
		return h, err
	}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return h, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&h)
	return h, err
}

// Errors of Dial.
var (
	// ErrUnknown: the table has no address for this id.
	ErrUnknown = errors.New("no such node is known")
	// ErrGone: that node has ended.
	ErrGone = errors.New("that node is gone")
	// ErrSilent: that node does not answer.
	ErrSilent = errors.New("that node does not answer")
	// ErrOtherNode: another node answers at its address.
	ErrOtherNode = errors.New("another node answers at that address")
)

// ConnectionRefused reports whether a machine has refused a connection: nobody listens there.
func ConnectionRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
