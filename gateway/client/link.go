package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"reseat/gateway/wire"
)

// A link is one connection, or an attempt at one. Two goroutines move its bytes;
// the loop owns the rest.
type link struct {
	// Static: what its handshake says. An empty token begins a session.
	token         string
	stated        uint64
	held          int64  // of message stated+1
	settled, sent uint64 // protocol section 5.6
	route         string // of the newest hello
	born          time.Time

	cancel  context.CancelFunc
	write   chan frame   // one slot: the loop gives the next one when it hears wrote
	heard   atomic.Int64 // last sign of life, in ns since born
	reached atomic.Bool  // a server accepted the connection, even if the handshake is slow
	watched atomic.Bool  // the loop wants flowing at the next sign of life
	blocked atomic.Bool  // a write had to wait
	partial int          // the reader's: bytes received since the newest complete message

	// The loop's.
	opened  bool
	hello   int    // which of the session's hellos it got, 0 for none yet
	last    uint64 // number of the newest message that came on it, repeats included
	acked   int64  // the newest ack given on it, -1 for none
	busy    bool   // its writer writes
	words   []frame
	waiting *pong
	bye     bool
	useful  bool // it brought anything new
	since   time.Time
	verdict *verdict

	resumes    bool      // the gateway continues large messages where a connection was cut
	parts      *parts    // of the message that comes in parts; nil: none does
	from       int64     // where the next one must begin
	unanswered int64     // bytes of parts since the gateway last heard that they come
	answered   time.Time // when it last did, or the message began
}

// A frame is an outgoing message. verb is "" for data.
type frame struct {
	verb string
	typ  MessageType
	data []byte
}

// A pong is due once everything before its
// ping was delivered, because it promises an ack (protocol section 5, Windows).
type pong struct {
	arg   string
	after uint64
}

type eventKind int

const (
	opened  eventKind = iota // it has its 101
	arrived                  // a message
	flowing                  // part of a large message; sent once, if the link is watched
	wrote                    // the writer wants more
	ended                    // the connection ended, or the attempt failed
)

// An event is a report of a link's goroutines to the loop.
type event struct {
	link *link
	kind eventKind
	typ  MessageType
	data []byte
	err  error

	began, at time.Time // arrived: time of the first byte and of the last
}

// run opens the connection and moves its bytes until it or ctx ends.
func (l *link) run(ctx context.Context, c *Conn) {
	ws, err := l.dial(ctx, c)
	if err != nil {
		l.notify(ctx, c, event{kind: ended, err: err})
		return
	}
	l.note()
	l.notify(ctx, c, event{kind: opened})
	var writer sync.WaitGroup
	writer.Go(func() { l.writeAll(ctx, c, ws) })
	l.readAll(ctx, c, ws)
	l.cancel()
	ws.CloseNow()
	writer.Wait()
}

func (l *link) note() { l.heard.Store(int64(time.Since(l.born))) }

// lastHeard is the time of the last sign of life. Before the 101 it is when the
// attempt began.
func (l *link) lastHeard() time.Time { return l.born.Add(time.Duration(l.heard.Load())) }

// notify reports an event to the loop, unless the loop has abandoned the link.
func (l *link) notify(ctx context.Context, c *Conn, e event) {
	e.link = l
	select {
	case c.events <- e:
	case <-ctx.Done():
	}
}

// dial makes the handshake. It follows no redirect, which would send the token to
// another server.
func (l *link) dial(ctx context.Context, c *Conn) (*websocket.Conn, error) {
	own := *c.httpClient()
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	own.Transport = strictTransport{own.Transport, stream{l, func() { l.notify(ctx, c, event{kind: flowing}) }}}
	header := c.header()
	header.Set("Reseat-Settled", fmt.Sprintf("%d %d", l.settled, l.sent))
	if l.token != "" {
		header.Set("Reseat-Token", l.token)
		header.Set("Reseat-Received", strconv.FormatUint(l.stated, 10))
	}
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart: func() { l.reached.Store(true) },
		GotConn:           func(httptrace.GotConnInfo) { l.reached.Store(true) },
	})
	subprotocols := append(c.opts.Subprotocols[:len(c.opts.Subprotocols):len(c.opts.Subprotocols)], wire.Subprotocol, wire.Parts, wire.Skip,
		wire.PrefixPartial+strconv.FormatInt(l.held, 10))
	if l.token == "" {
		subprotocols = append(subprotocols, wire.Refusals)
	} else if wire.ValidRoute(l.route) {
		subprotocols = append(subprotocols, wire.PrefixRoute+l.route)
	}
	ws, resp, err := websocket.Dial(traced, c.url, &websocket.DialOptions{
		HTTPClient: &own, HTTPHeader: header, Host: c.opts.Host, Subprotocols: subprotocols,
	})
	if err != nil {
		return nil, handshakeError(resp, err)
	}
	if ws.Subprotocol() != wire.Subprotocol {
		ws.CloseNow()
		return nil, ErrNotReseat
	}
	ws.SetReadLimit(c.readLimit())
	return ws, nil
}

func (c *Conn) httpClient() *http.Client { return cmp.Or(c.opts.HTTPClient, http.DefaultClient) }

// header is what every request has.
func (c *Conn) header() http.Header {
	if h := c.opts.HTTPHeader.Clone(); h != nil {
		return h
	}
	return http.Header{}
}

// readLimit is the max size of a message that is read, -1 for none.
func (c *Conn) readLimit() int64 { return max(cmp.Or(c.opts.ReadLimit, defaultReadLimit), -1) }

// strictTransport makes connections whose end of stream is an error: nothing is read
// after a Close frame, so every end of stream truncates something. The library would
// take one right after a frame's header for an empty message.
type strictTransport struct {
	http.RoundTripper
	stream stream
}

func (t strictTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := cmp.Or(t.RoundTripper, http.DefaultTransport).RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		if conn, ok := resp.Body.(io.ReadWriteCloser); ok {
			resp.Body = strictStream{conn, t.stream}
		}
	}
	return resp, err
}

type strictStream struct {
	io.ReadWriteCloser
	stream stream
}

func (t strictStream) Read(b []byte) (int, error) {
	n, err := t.ReadWriteCloser.Read(b)
	if n > 0 {
		t.stream.read(n)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Write counts as a sign of life if it had to wait: then the send buffer was full,
// and the peer has acknowledged bytes since. A write into a buffer with room proves
// nothing.
func (t strictStream) Write(b []byte) (int, error) {
	began := time.Now()
	n, err := t.ReadWriteCloser.Write(b)
	if err == nil && time.Since(began) >= blockedWrite {
		t.stream.link.note()
		t.stream.link.blocked.Store(true)
	}
	return n, err
}

const (
	blockedWrite = 100 * time.Millisecond // a write that took this long had to wait
	minFlow      = 1 << 10                // more bytes than any close has: a 4409 is no sign of life
)

// A stream records the signs of life of a link.
type stream struct {
	link *link
	flow func() // sends flowing
}

// read records that n bytes were received.
func (s stream) read(n int) {
	l := s.link
	l.note()
	l.partial += n
	if l.partial > minFlow && l.watched.CompareAndSwap(true, false) {
		s.flow()
	}
}

func handshakeError(resp *http.Response, err error) error {
	if resp == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return err
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
	return &HandshakeError{resp.StatusCode, string(body)}
}

func (l *link) readAll(ctx context.Context, c *Conn, ws *websocket.Conn) {
	for {
		typ, r, err := ws.Reader(ctx)
		began := time.Now()
		var data []byte
		if err == nil {
			data, err = io.ReadAll(r)
		}
		if err != nil {
			l.notify(ctx, c, event{kind: ended, err: err})
			return
		}
		l.partial = 0
		l.notify(ctx, c, event{kind: arrived, typ: typ, data: data, began: began, at: time.Now()})
	}
}

func (l *link) writeAll(ctx context.Context, c *Conn, ws *websocket.Conn) {
	for {
		select {
		case f := <-l.write:
			if err := ws.Write(ctx, f.typ, f.data); err != nil {
				l.notify(ctx, c, event{kind: ended, err: err})
				return
			}
			l.notify(ctx, c, event{kind: wrote})
		case <-ctx.Done():
			return
		}
	}
}

// send queues a control message. It replaces a queued one of the same verb: a newer ack
// includes the older, and of several pings only the newest needs an answer.
func (l *link) send(verb, arg string) {
	if arg != "" {
		arg = " " + arg
	}
	for i, f := range l.words {
		if f.verb == verb {
			l.words = append(l.words[:i], l.words[i+1:]...)
			break
		}
	}
	l.words = append(l.words, frame{verb, MessageText, []byte(dle + verb + arg)})
}

// give passes a frame to the writer, which must be idle.
func (l *link) give(f frame) {
	l.busy = true
	l.write <- f
}

// isClose reports whether err is a Close frame with that code.
func isClose(err error, code int) bool {
	return !errors.Is(err, context.Canceled) && websocket.CloseStatus(err) == websocket.StatusCode(code)
}
