package secure

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"reseat/gateway/transport/rawconn"
)

// handshakeTimeout bounds a client's TLS handshake.
const handshakeTimeout = 5 * time.Second

// A Listener accepts connections whose TLS handshake is complete, each a *tls.Conn,
// so that its result is known before HTTP begins. Handshakes run concurrently: a slow
// one delays no other.
type Listener struct {
	net.Listener
	config *tls.Config
	log    *slog.Logger
	after  func()

	ready   chan net.Conn
	failed  chan error
	ctx     context.Context // until Close
	stop    context.CancelFunc
	running sync.WaitGroup
}

func newListener(inner net.Listener, config *tls.Config, log *slog.Logger, after func()) *Listener {
	ctx, stop := context.WithCancel(context.Background())
	l := &Listener{
		Listener: inner, config: config, log: log, after: after,
		ready: make(chan net.Conn), failed: make(chan error), ctx: ctx, stop: stop,
	}
	l.running.Go(l.acceptAll)
	return l
}

// Accept waits for the next connection whose handshake is complete.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case err := <-l.failed:
		return nil, err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close stops accepting, cancels the handshakes in flight and waits for them.
func (l *Listener) Close() error {
	l.stop()
	err := l.Listener.Close()
	l.running.Wait()
	l.after()
	return err
}

// acceptAll passes errors to Accept, whose caller knows which of them are temporary,
// and continues when Accept is called again.
func (l *Listener) acceptAll() {
	for {
		c, err := l.Listener.Accept()
		if err == nil {
			l.running.Go(func() { l.handshake(c) })
			continue
		}
		select {
		case l.failed <- err:
		case <-l.ctx.Done():
			return
		}
	}
}

// handshake passes c to Accept, or closes it.
func (l *Listener) handshake(c net.Conn) {
	defer func() { // as in net/http: a panic in one connection must not affect others
		if v := recover(); v != nil {
			l.log.Error("tls.panic", "peer", peer(c), "value", v, "stack", string(debug.Stack()))
			l.drop(c, c)
		}
	}()
	ctx, cancel := context.WithTimeout(l.ctx, handshakeTimeout)
	defer cancel()
	t := tls.Server(rawconn.Quiet(c), l.config)
	if err := t.HandshakeContext(ctx); err != nil {
		l.log.Debug("tls.handshake_failed", "peer", peer(c), "err", err)
		explain(err)
		l.drop(c, c)
		return
	}
	if t.ConnectionState().NegotiatedProtocol == challengeProtocol {
		l.drop(c, t) // the handshake was all of it, RFC 8737 section 3
		return
	}
	select {
	case l.ready <- t:
	case <-l.ctx.Done():
		l.drop(c, t)
	}
}

// drop closes, by how, a connection that Accept will not return. An inner listener
// that counts its connections is notified.
func (l *Listener) drop(c net.Conn, how io.Closer) {
	how.Close()
	if counts, ok := l.Listener.(interface{ Forget(net.Conn) }); ok {
		counts.Forget(c)
	}
}

// Requests without TLS begin with one of httpStarts, as far as a TLS record's head goes.
var httpStarts = []string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH"}

// explain answers a client that speaks HTTP without TLS, which would otherwise see
// only a closed connection.
func explain(err error) {
	var bad tls.RecordHeaderError
	if errors.As(err, &bad) && bad.Conn != nil && slices.Contains(httpStarts, string(bad.RecordHeader[:])) {
		bad.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		io.WriteString(bad.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"+
			"only https:// and wss:// are served at this port\n")
	}
}

func peer(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}
