package link

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"reseat/gateway/transport/rawconn"
)

const (
	// Path at a node's listener makes a link of a connection: frames follow the request.
	Path = "/node/v1/link"
	// linkTime is how long making a link may take.
	linkTime = 5 * time.Second
)

// Links are those between this node and others. There is one to each node that clients are passed on to, and
// one from each that passes on clients. It is a net.Listener, for these clients.
type Links struct {
	Options
	came  chan net.Conn // clients that other nodes pass on
	over  chan struct{} // closed by Close
	close func()

	mu      sync.Mutex
	to      map[string]*Link
	from    map[*Link]struct{}
	leaving bool
}

// Options are those of Links.
type Options struct {
	Listener net.Addr                                                 // of the node
	Dial     func(ctx context.Context, node string) (net.Conn, error) // connects to another's
	Retired  func() bool                                              // another process is this node now, which passes on nothing new
	Host     func(l *Link, conn net.Conn) bool                        // has an event loop move the bytes of a link, if there is one, and own conn
}

// NewLinks returns the links of a node.
func NewLinks(o Options) *Links {
	l := &Links{Options: o, came: make(chan net.Conn), over: make(chan struct{}), to: make(map[string]*Link), from: make(map[*Link]struct{})}
	l.close = sync.OnceFunc(func() { close(l.over) })
	return l
}

// Open returns a connection to a node for one client, on the link to that node. If there is none, it begins one. The
// link ends with reach.
func (l *Links) Open(reach context.Context, node string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to := l.to[node]; to != nil {
		if s, err := to.Open(); err == nil {
			return s, nil
		}
	}
	made := New(nil)
	l.to[node] = made
	go l.connect(made, reach, node)
	return made.Open()
}

// connect makes the connection of a link, and waits for its end. A node that is silent answers none of the clients on
// the link. A process that retires has left the cluster, and passes on for as long as its clients stay.
func (l *Links) connect(made *Link, reach context.Context, node string) {
	ctx, cancel := context.WithTimeout(context.Background(), linkTime)
	defer cancel()
	conn, err := l.Dial(ctx, node)
	if err == nil {
		_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: node\r\n\r\n", Path)
	}
	if err != nil {
		made.Fail(err)
	}
	if conn != nil {
		l.begin(made, conn, nil)
	}
	defer context.AfterFunc(reach, func() {
		if !l.Retired() {
			made.Close()
		}
	})()
	l.wait(made)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to[node] == made {
		delete(l.to, node)
	}
}

// begin has the bytes of a link moved. early was read from its connection.
func (l *Links) begin(made *Link, conn net.Conn, early []byte) {
	conn.SetDeadline(time.Time{})
	made.Begin(conn.LocalAddr(), conn.RemoteAddr())
	made.Arrived(early, nil)
	if l.Host == nil || !l.Host(made, conn) {
		made.Run(conn)
	}
}

// wait waits for the end of a link.
func (l *Links) wait(made *Link) {
	select {
	case <-made.Done():
	case <-l.over:
		made.Close()
	}
}

// ServeHTTP makes a link of a connection from another node.
func (l *Links) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil { // a stream of a link has no TLS of its own
		http.NotFound(w, r)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	made := New(l.take)
	l.mu.Lock()
	l.from[made] = struct{}{}
	if l.leaving {
		made.Leave()
	}
	l.mu.Unlock()
	early, _ := rw.Peek(rw.Reader.Buffered())
	l.begin(made, conn, early)
	l.wait(made)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.from, made)
}

// take has the node's server serve a client.
func (l *Links) take(s *Stream) {
	select {
	case l.came <- rawconn.Over(s):
	case <-l.over:
		s.Close()
	}
}

// Accept implements net.Listener.
func (l *Links) Accept() (net.Conn, error) {
	select {
	case c := <-l.came:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (l *Links) Addr() net.Addr { return l.Listener }

// Close ends all links.
func (l *Links) Close() error { l.close(); return nil }

// Leave has other nodes pass no more clients on to this process: its successor takes them.
func (l *Links) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = true
	for one := range l.from {
		one.Leave()
	}
}

// Count counts the links from other nodes, and those to others.
func (l *Links) Count() (in, out int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.from), len(l.to)
}
