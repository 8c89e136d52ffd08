package gateway

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"reseat/gateway/drive/sock"
)

// A Lobby knows the connections that wait: for their TLS handshake, for a request
// to be whole, for the next one, or for a refused client to take its leave. Each
// holds a descriptor, which strangers could take from those who resume. Where
// descriptors run short, those that have waited the longest are closed, as any
// server may do: RFC 9112 section 9.5.
//
// Its listeners stand below TLS. A server that they are for has Note as its
// ConnState, Handler around its handler, and our ConnContext.
type Lobby struct {
	enough int         // descriptors up to which they are not short; zero: they never are
	taken  func() int  // those of whoever does not wait
	short  func()      // told that they are short, before anything is closed
	closed func(n int) // told how many were closed

	mu     sync.Mutex // never held over a call to the outside
	line   list.List  // of net.Conn, who has waited the longest first
	guests map[net.Conn]*guest
}

// A guest is a connection that has come and is not taken over yet: its place in
// the line, nil while a request of its is served.
type guest struct{ place *list.Element }

// givingBack is how long a connection that was closed has to give its descriptor
// back, before it is tried to have one again.
const givingBack = time.Millisecond

// reserved is how many of so many descriptors are not for sessions: a tenth of
// them, 64 at least where there are as many. At least half of these are for
// clients that wait, a quarter is for those of the admin address, and the last
// one is for the process itself.
func reserved(descriptors int) int {
	return max(descriptors/10, min(64, descriptors/2))
}

// openLobbies makes those of the client address and of the admin address: nobody
// at the one can take a place from the other.
func (g *Gateway) openLobbies() {
	g.lobby = newLobby(g.cfg.Descriptors-reserved(g.cfg.Descriptors)/2, g.noteShed)
	g.lobby.taken, g.lobby.short = g.reg.taken, g.closeIdle
	g.adminLobby = newLobby(reserved(g.cfg.Descriptors)/4, g.noteShed)
}

func newLobby(enough int, closed func(n int)) *Lobby {
	return &Lobby{
		enough: enough, taken: func() int { return 0 }, short: func() {}, closed: closed,
		guests: make(map[net.Conn]*guest),
	}
}

// Lobby is where connections of the client address wait.
func (g *Gateway) Lobby() *Lobby { return g.lobby }

// AdminLobby is where those of the admin address wait.
func (g *Gateway) AdminLobby() *Lobby { return g.adminLobby }

// closeIdle gives back the descriptors of connections to game servers between two
// ordinary requests.
func (g *Gateway) closeIdle() {
	for _, p := range g.proxies {
		p.Close()
	}
}

// noteShed counts connections that were closed for want of descriptors.
func (g *Gateway) noteShed(n int) {
	g.metrics.shed.Add(float64(n))
	g.shedLog.warn("descriptors are short: connections that wait are closed, the longest waiting first; raise the limit of open files", "limit", g.cfg.Descriptors)
}

// Listen has the connections that inner accepts wait in the lobby from the first.
func (l *Lobby) Listen(inner net.Listener) net.Listener { return &entrance{inner, l} }

type entrance struct {
	net.Listener
	lobby *Lobby
}

// Accept waits for the next connection.
func (e *entrance) Accept() (net.Conn, error) {
	for {
		c, err := e.Listener.Accept()
		switch {
		case err == nil:
			e.lobby.see(c)
			e.lobby.relieve()
			return c, nil
		case !noDescriptor(err), !e.lobby.spare():
			return nil, err
		}
	}
}

// Forget is for who closes what it has accepted before an http.Server has it.
func (e *entrance) Forget(c net.Conn) { e.lobby.forget(c) }

// see has c wait until it is forgotten.
func (l *Lobby) see(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guests[c] = &guest{place: l.line.PushBack(c)}
}

// relieve is called when a descriptor more is in use, or is about to be. It makes
// room where they are short.
func (l *Lobby) relieve() {
	if l.enough == 0 {
		return
	}
	room := l.enough - l.taken()
	l.dismiss(func(waiting int) int { return waiting - room })
}

// noDescriptor reports whether err is that there was none.
func noDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// spare has one descriptor given back, where there was none, and reports whether
// there was somebody to give it: then it may be tried again.
func (l *Lobby) spare() bool {
	if l.dismiss(func(int) int { return 1 }) == 0 {
		return false
	}
	time.Sleep(givingBack)
	return true
}

// dismiss closes as many of those that wait as are too many, and reports how many
// these were.
func (l *Lobby) dismiss(tooMany func(waiting int) int) (closed int) {
	gone, short := l.first(tooMany)
	if short {
		l.short()
	}
	for _, c := range gone {
		c.Close()
	}
	if len(gone) > 0 {
		l.closed(len(gone))
	}
	return len(gone)
}

// first takes those out of the lobby that have waited the longest. Short says that
// there were to be some.
func (l *Lobby) first(tooMany func(waiting int) int) (gone []net.Conn, short bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := tooMany(l.line.Len())
	for range min(n, l.line.Len()) {
		c := l.line.Remove(l.line.Front()).(net.Conn)
		delete(l.guests, c)
		gone = append(gone, c)
	}
	return gone, n > 0
}

// forget is called when c is closed, or taken over.
func (l *Lobby) forget(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.guests[c]; g != nil {
		l.leaveLocked(g)
		delete(l.guests, c)
	}
}

// leaveLocked takes g out of the line.
func (l *Lobby) leaveLocked(g *guest) {
	if g.place != nil {
		l.line.Remove(g.place)
		g.place = nil
	}
}

// serve is called when a request of c's is whole.
func (l *Lobby) serve(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.guests[c]; g != nil {
		l.leaveLocked(g)
	}
}

// wait is called when a request of c's has been served: it may wait for the next.
func (l *Lobby) wait(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.guests[c]; g != nil {
		l.leaveLocked(g)
		g.place = l.line.PushBack(c)
	}
}

type connKey struct{}

// ConnContext is for an http.Server: a Lobby's Handler finds the connection there.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Note is an http.Server's ConnState.
func (l *Lobby) Note(c net.Conn, state http.ConnState) {
	switch c = sock.Lowest(c); state {
	case http.StateIdle:
		l.wait(c)
	case http.StateHijacked, http.StateClosed:
		l.forget(c)
	}
}

// Handler is h, and connections do not wait while it serves a request of theirs.
func (l *Lobby) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			c = sock.Lowest(c)
			l.serve(c)
			if r.ProtoMajor == 1 { // of HTTP/2 Note is told when no request is left
				defer l.wait(c)
			}
		}
		h.ServeHTTP(w, r)
	})
}
