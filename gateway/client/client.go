// Package client speaks reseat.v1 from Go: for bots, load tests and services.
//
// A Conn is a session, not a connection. When its connection is lost it resumes
// by itself, and whoever reads and writes notices nothing but the time that
// passed: every message arrives once and in order, both ways, as long as no
// absence is longer than the grace period and both processes live. docs/protocol.md
// says what travels and why.
package client

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"reseat/gateway/wire"
)

// A MessageType is what a data message is: MessageText or MessageBinary.
type MessageType = websocket.MessageType

// The types of data messages.
const (
	MessageText   = websocket.MessageText
	MessageBinary = websocket.MessageBinary
)

// defaultReadLimit is the largest message that is read where Options say nothing.
const defaultReadLimit = 16 << 20

// Options are what Dial can be told besides the URL. The zero value, or nil, is
// good.
type Options struct {
	// HTTPClient makes the handshakes. Nil means http.DefaultClient. Its Timeout
	// should be zero: a first handshake has 10 s and a resume's 4 s or more, and
	// waiting for hello has its own time.
	HTTPClient *http.Client
	// HTTPHeader is sent with every handshake, of a resume too.
	HTTPHeader http.Header
	// Host is sent in the place of the URL's.
	Host string
	// Subprotocols are the application's own.
	Subprotocols []string
	// Token names a session that was made ahead (POST /sessions), which Dial then
	// joins instead of beginning one.
	Token string
	// ReadLimit is the largest message that is read, in bytes; a larger one breaks
	// the connection. Zero means 16 MiB, a negative one no limit.
	ReadLimit int64
	// OnDetach is called when the connection is lost, or has been silent for so long
	// that the client resumes beside it (protocol section 5, suspicion); why says
	// which, as in "no answer for 5s". It is called once per loss. OnResume follows
	// when the session goes on: on a new connection, or on the old one if that was a
	// false alarm, with zero Replay and Lost.
	//
	// Both run on the goroutine that serves the session: they must return at once and
	// must not call methods of the Conn.
	OnDetach func(why error)
	OnResume func(Resumed)
}

// Resumed says how a session went on.
type Resumed struct {
	// Away is the time from the last sign of life of the gateway until the session
	// went on, as the application experienced it: it includes the time until the loss
	// was noticed. Zero if one connection followed the other without a gap (move).
	Away time.Duration
	// Replay is how many messages the gateway had kept.
	Replay uint64
	// Lost is how many messages are missing, under --overflow drop-oldest alone.
	Lost uint64
}

// A Conn is one session. Its methods may be called by several goroutines at
// once, though of two that Read at once each gets a part of the messages.
//
// Read must be called all the time, or what comes stays unacked: then the gateway
// keeps it, in the end stops reading the game server, and Write waits where its
// acks stand behind what is not read. Nothing is lost by that.
//
// A Conn that is not needed any more must be closed, by Close or CloseNow.
type Conn struct {
	url  string
	opts Options

	deliver chan message  // to Read, unbuffered: what was received there has been handed over
	writes  chan message  // from Write
	closes  chan farewell // from Close
	drops   chan struct{} // from Drop
	events  chan event    // from the links
	ready   chan struct{} // closed at the first hello
	closing chan struct{} // closed by the first Close or CloseNow
	over    chan struct{} // closed when all has ended; err and rest are set before

	shut sync.Once
	cut  context.CancelFunc // ends the loop

	// Set at the first hello, before ready is closed.
	session, subprotocol string
	largest              atomic.Int64 // limits.message_bytes

	err error // why it is over

	mu   sync.Mutex
	rest []message // what had come and nobody had read when it ended
}

// noCode is a bye of a page that called close() without one.
const noCode = 1005

// A message is a data message, with its number.
type message struct {
	typ    MessageType
	data   []byte
	number uint64
}

// A farewell is what Close was given.
type farewell struct {
	code   int
	reason string
}

// Dial begins a session at url (ws, wss, http or https), or joins the one that
// Options.Token names, and returns when the gateway has sent its hello. ctx bounds
// that and nothing later.
//
// A refusal by the gateway, or by the game server behind it, is a *CloseError with
// Status; any other answer with an HTTP error is a *HandshakeError; a server that does
// not speak reseat.v1 is ErrNotReseat. No second session is begun behind a first one that failed.
func Dial(ctx context.Context, url string, o *Options) (*Conn, error) {
	if o == nil {
		o = new(Options)
	}
	run, cut := context.WithCancel(context.Background())
	c := &Conn{
		url: url, opts: *o, cut: cut,
		deliver: make(chan message), writes: make(chan message), closes: make(chan farewell), drops: make(chan struct{}),
		events: make(chan event), ready: make(chan struct{}), closing: make(chan struct{}), over: make(chan struct{}),
	}
	go newLoop(c, run).run()
	select {
	case <-c.ready:
		return c, nil
	case <-c.over:
		return nil, fmt.Errorf("dial %s: %w", url, c.err)
	case <-ctx.Done():
		c.CloseNow()
		return nil, fmt.Errorf("dial %s: %w", url, context.Cause(ctx))
	}
}

// Session is the session's id, by which the control API knows it.
func (c *Conn) Session() string { return c.session }

// Subprotocol is the one that the game server chose, or "".
func (c *Conn) Subprotocol() string { return c.subprotocol }

// Read waits for the next message. A ctx that ends leaves the session as it is.
// What came before the end of the session is read before its error: a *CloseError
// where the game server or the gateway said why, ErrLost where no way back was
// found, ErrClosed after Close.
//
// The caller has the message once Read returns it; that is when it is acked.
func (c *Conn) Read(ctx context.Context) (MessageType, []byte, error) {
	select {
	case m := <-c.deliver:
		return m.typ, m.data, nil
	case <-c.over:
		return c.readRest()
	case <-ctx.Done():
		return 0, nil, context.Cause(ctx)
	}
}

// readRest reads what was there when the session ended.
func (c *Conn) readRest() (MessageType, []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.rest) == 0 {
		return 0, nil, c.err
	}
	m := c.rest[0]
	c.rest = c.rest[1:]
	return m.typ, m.data, nil
}

// Write takes a message, which is then sent once, attached or detached, unless
// the session ends before. It keeps no reference to data. It waits while as much
// is unacked as the gateway allows (hello.limits); a ctx that ends meanwhile
// leaves the session as it is, and the message unsent.
func (c *Conn) Write(ctx context.Context, typ MessageType, data []byte) error {
	if typ != MessageText && typ != MessageBinary {
		return fmt.Errorf("write: want MessageText or MessageBinary, got %v", typ)
	}
	if most := c.largest.Load(); most > 0 && int64(len(data)) > most {
		return fmt.Errorf("write: %w: %d bytes, at most %d", ErrTooBig, len(data), most)
	}
	m := message{typ: typ, data: append([]byte(nil), data...)}
	select {
	case <-c.closing:
		return ErrClosed
	default:
	}
	select {
	case c.writes <- m:
		return nil
	case <-c.closing:
		return ErrClosed
	case <-c.over:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the session: the game server gets what was written before, and then
// code (1000, 1001 or 3000 to 4999) and reason (at most 123 bytes). Where there is
// no connection it is carried through on the next one, and Close waits for as long:
// until the grace period is over at the latest. What comes meanwhile is thrown
// away. Its error is how the session ended otherwise: ErrLost, or a *CloseError
// where the game server or the gateway was first.
func (c *Conn) Close(code int, reason string) error {
	if !wire.ByeCode(code) || code == noCode || len(reason) > 123 {
		return fmt.Errorf("close: want a code of 1000, 1001 or 3000 to 4999 and at most 123 bytes of reason, got %d and %d", code, len(reason))
	}
	first := false
	c.shut.Do(func() { first = true; close(c.closing) })
	if first {
		select {
		case c.closes <- farewell{code, reason}:
		case <-c.over:
		}
	}
	<-c.over
	if c.err == ErrClosed {
		return nil
	}
	return c.err
}

// CloseNow breaks the connection and forgets the session without telling anybody:
// to the gateway it is detached until its grace period is over.
func (c *Conn) CloseNow() {
	c.shut.Do(func() { close(c.closing) })
	c.cut()
	<-c.over
}

// Drop breaks the present connection, as a tunnel would. The session resumes. It is
// for tests of what one has built.
func (c *Conn) Drop() {
	select {
	case c.drops <- struct{}{}:
	case <-c.over:
	}
}
