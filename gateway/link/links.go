package link

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reseat/gateway/transport/rawconn"
)

const (
	// Path at a node's listener asks for a link.
	Path = "/node/v1/link"
	name = "reseat-link-1" // in Upgrade
	// linkTime is how long making a link may take.
	linkTime = 5 * time.Second
)

// Links are those between this node and others. There is one to each node that clients are passed on to, and
// one from each that passes on clients.
type Links struct {
	Options

	came chan net.Conn // clients that other nodes pass on
	over chan struct{} // closed by Close

	mu      sync.Mutex
	to      map[string]*linkTo
	from    map[*Link]struct{}
	leaving bool
	closing sync.Once
}

// Options are those of Links.
type Options struct {
	Addr net.Addr // of the node's own listener
	// Dial connects to another's.
	Dial func(ctx context.Context, node string) (net.Conn, error)
	// Retired reports whether another process is this node now, which passes on nothing new.
	Retired func() bool
	// Host has an event loop move the bytes of a link, over conn, which it owns then: see Link.Host. It reports false
	// if there is none.
	Host func(l *Link, conn net.Conn) bool
}

// A linkTo is the link to one node.
type linkTo struct {
	link   *Link
	making *making // not nil while a link is being made
}

// making is the making of a link. err may be read once done is closed.
type making struct {
	done chan struct{}
	err  error
}

// NewLinks returns the links of a node.
func NewLinks(o Options) *Links {
	return &Links{Options: o, came: make(chan net.Conn), over: make(chan struct{}), to: make(map[string]*linkTo), from: make(map[*Link]struct{})}
}

// Open returns a connection to a node for one client. The link to it ends with reach.
func (l *Links) Open(ctx, reach context.Context, node string) (net.Conn, error) {
	for {
		l.mu.Lock()
		to := l.to[node]
		if to == nil {
			to = new(linkTo)
			l.to[node] = to
		}
		if to.link != nil {
			if s, err := to.link.Open(); err == nil {
				l.mu.Unlock()
				return s, nil
			}
			to.link = nil
		}
		m := to.making
		if m == nil {
			m = &making{done: make(chan struct{})}
			to.making = m
			go l.make(context.WithoutCancel(ctx), reach, node, to, m)
		}
		l.mu.Unlock()
		select {
		case <-m.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if m.err != nil {
			return nil, m.err
		}
	}
}

// make makes a link to a node.
func (l *Links) make(ctx, reach context.Context, node string, to *linkTo, m *making) {
	ctx, cancel := context.WithTimeout(ctx, linkTime)
	defer cancel()
	made, err := l.connect(ctx, node)
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(m.done)
	to.making, m.err = nil, err
	if err != nil {
		return
	}
	to.link = made
	// A node that is silent answers none of the clients on the link. A process that retires has left the
	// cluster, and passes on for as long as its clients stay.
	stop := context.AfterFunc(reach, func() {
		if !l.Retired() {
			made.Close()
		}
	})
	go l.forget(node, to, made, stop)
}

// forget waits for the end of a link.
func (l *Links) forget(node string, to *linkTo, made *Link, stop func() bool) {
	select {
	case <-made.Done():
	case <-l.over:
		made.Close()
	}
	stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	if to.link == made {
		delete(l.to, node)
	}
}

// connect makes the connection of a link.
func (l *Links) connect(ctx context.Context, node string) (*Link, error) {
	conn, err := l.Dial(ctx, node)
	if err != nil {
		return nil, err
	}
	until, _ := ctx.Deadline()
	conn.SetDeadline(until)
	r := bufio.NewReader(conn)
	if _, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Path, name); err == nil {
		var resp *http.Response
		if resp, err = http.ReadResponse(r, nil); err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
			err = fmt.Errorf("the node answers %s", resp.Status)
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return l.begin(conn, r, nil), nil
}

// begin begins a link over conn. r has read from it.
func (l *Links) begin(conn net.Conn, r *bufio.Reader, accept func(*Stream)) *Link {
	conn.SetDeadline(time.Time{})
	made := New(conn.LocalAddr(), conn.RemoteAddr(), accept)
	early, _ := r.Peek(r.Buffered())
	made.Arrived(early, nil)
	if l.Host == nil || !l.Host(made, conn) {
		made.Run(conn)
	}
	return made
}

// ServeHTTP makes a link of a connection from another node.
func (l *Links) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil || r.Header.Get("Upgrade") != name { // a stream of a link has no TLS of its own
		http.NotFound(w, r)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	conn.SetDeadline(time.Now().Add(linkTime))
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", name); err != nil {
		conn.Close()
		return
	}
	made := l.begin(conn, rw.Reader, l.take)
	l.mu.Lock()
	l.from[made] = struct{}{}
	if l.leaving {
		made.Leave()
	}
	l.mu.Unlock()
	select {
	case <-made.Done():
	case <-l.over:
		made.Close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.from, made)
}

// take has the node's server serve a client.
func (l *Links) take(s *Stream) {
	conn := rawconn.Over(s)
	select {
	case l.came <- conn:
	case <-l.over:
		conn.Close()
	}
}

// Accept implements net.Listener, for the clients that other nodes pass on.
func (l *Links) Accept() (net.Conn, error) {
	select {
	case c := <-l.came:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (l *Links) Addr() net.Addr { return l.Options.Addr }

// Close ends all links.
func (l *Links) Close() error {
	l.closing.Do(func() { close(l.over) })
	return nil
}

// Leave has other nodes pass no more clients on to this process: its successor takes them.
func (l *Links) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = true
	for one := range l.from {
		one.Leave()
	}
}

var descLinks = prometheus.NewDesc("reseat_node_links", "Connections that carry the clients which one node passes on to another, by direction: out to nodes, in from nodes.", []string{"direction"}, nil)

// Describe implements prometheus.Collector.
func (l *Links) Describe(ch chan<- *prometheus.Desc) { ch <- descLinks }

// Collect implements prometheus.Collector.
func (l *Links) Collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := 0
	for _, to := range l.to {
		if to.link != nil {
			out++
		}
	}
	ch <- prometheus.MustNewConstMetric(descLinks, prometheus.GaugeValue, float64(len(l.from)), "in")
	ch <- prometheus.MustNewConstMetric(descLinks, prometheus.GaugeValue, float64(out), "out")
}
