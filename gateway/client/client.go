// Package client speaks reseat.v1 from Go: for bots, load tests and services.
//
// A Conn is a session, not a connection. When its connection is lost it resumes
// automatically; readers and writers only notice the delay. Every message arrives once
// and in order, both ways, as long as no disconnect outlasts the grace period and both
// processes live. docs/protocol.md specifies the protocol.
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

// A MessageType is the type of a data message: MessageText or MessageBinary.
type MessageType = websocket.MessageType

// The types of data messages.
const (
	MessageText   = websocket.MessageText
	MessageBinary = websocket.MessageBinary
)

// What zero Options mean.
const (
	defaultReadLimit   = 16 << 20
	defaultGiveUpAfter = 10 * time.Minute
)

// Options configure Dial. The zero value, or nil, is usable.
type Options struct {
	// HTTPClient makes the handshakes. Nil means http.DefaultClient. Its Timeout
	// should be zero: a first handshake has 10 s and a resume's 4 s or more, and
	// waiting for hello has its own time.
	HTTPClient *http.Client
	// HTTPHeader is sent with every handshake, of a resume too.
	HTTPHeader http.Header
	// Host, if not empty, replaces the URL's host in the Host header.
	Host string
	// Subprotocols are the application's own.
	Subprotocols []string
	// Token names a pre-created session (POST /sessions), which Dial then
	// joins instead of creating one.
	Token string
	// ReadLimit is the max size of a message that is read, in bytes; a larger one breaks
	// the connection. Zero means 16 MiB, a negative one no limit.
	ReadLimit int64
	// GiveUpAfter bounds the attempts to resume while no gateway answers at all, counted from the
	// last sign of life; the gateway may have changed the grace period meanwhile. It is never less than
	// the grace period that the client knows and two heartbeats. Zero means 10 minutes.
	GiveUpAfter time.Duration
	// OnDetach is called when the connection is lost, or has been silent for so long
	// that the client resumes beside it (protocol section 5, suspicion); why says
	// which, as in "no answer for 5s". It is called once per loss. OnResume follows
	// when the session continues: on a new connection, or on the old one after a
	// false alarm, with zero Replay and Lost.
	//
	// Both run on the goroutine that serves the session: they must return at once and
	// must not call methods of the Conn.
	OnDetach func(why error)
	OnResume func(Resumed)
	// OnUpstream is called when the game server's connection is lost and being dialled
	// again (--upstream-lost redial), and with false when it is back. What is written
	// meanwhile waits. The same rules apply.
	OnUpstream func(lost bool)
	// OnSkip is called when the gateway says that newer messages have replaced the next so
	// many (--newest): Read will not return them. Those before them may still be unread. The same
	// rules apply.
	OnSkip func(messages uint64)
}

// Resumed describes a resume.
type Resumed struct {
	// Away is the time from the last bytes of the gateway until the session
	// continued, as the application experienced it: it includes the time until the loss
	// was noticed. Zero if one connection followed the other without a gap (move).
	Away time.Duration
	// Replay is the number of messages that the gateway had kept.
	Replay uint64
	// Lost is the number of missing messages; not zero only with --overflow drop-oldest.
	Lost uint64
	// Skipped is the number of messages that newer ones have replaced (--newest); OnSkip says where.
	Skipped uint64
	// Moved is "failover" or "handoff" if a durable session has moved to another gateway of a cluster, else "".
	Moved string
}

// A Conn is one session. Its methods may be called from any goroutine; of two that
// Read concurrently each gets a part of the messages.
//
// Read must be called continuously, or messages stay unacked. The gateway then buffers
// them and finally stops reading the game server (backpressure), and Write blocks while
// acks are queued behind unread messages. Nothing is lost by that.
//
// A Conn that is no longer needed must be closed, by Close or CloseNow.
type Conn struct {
	url  string
	opts Options

	deliver chan message  // to Read, unbuffered: what was received from it is delivered
	writes  chan message  // from Write
	closes  chan farewell // from Close
	drops   chan struct{} // from Drop
	events  chan event    // from the links
	ready   chan struct{} // closed at the first hello
	closing chan struct{} // closed by the first Close or CloseNow
	over    chan struct{} // closed when the loop has ended; err and rest are set before

	shut sync.Once
	cut  context.CancelFunc // ends the loop

	// Set at the first hello, before ready is closed.
	session, subprotocol string
	maxMessage           atomic.Int64           // limits.message_bytes
	token                atomic.Pointer[string] // the newest

	err error // why the session ended

	mu   sync.Mutex
	rest []message // received and not read when the session ended
}

// noCode is the code of a bye after close() without a code.
const noCode = 1005

// A message is a data message, with its number.
type message struct {
	typ    MessageType
	data   []byte
	number uint64
}

func (m message) bytes() int64 { return int64(len(m.data)) }

// A farewell is the arguments of Close.
type farewell struct {
	code   int
	reason string
}

// Dial creates a session at url (ws, wss, http or https), or joins the one that
// Options.Token names, and returns when the gateway has sent its hello. ctx bounds
// Dial only, not the session.
//
// A refusal by the gateway, or by the game server behind it, is a *CloseError with
// Status; any other answer with an HTTP error is a *HandshakeError; a server that does
// not speak reseat.v1 is ErrNotReseat. Dial does not retry.
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

// Session returns the session's id, as in the control API.
func (c *Conn) Session() string { return c.session }

// Subprotocol returns the one that the game server chose, or "".
func (c *Conn) Subprotocol() string { return c.subprotocol }

// Read waits for the next message. If ctx ends, the session is not affected. Messages
// received before the end of the session are read before its error: a *CloseError if
// the game server or the gateway ended it, ErrLost if it could not be resumed,
// ErrClosed after Close.
//
// A message is acknowledged once Read has returned it.
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

// readRest returns what was received before the session ended.
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

// Write queues a message, which is then delivered once, attached or detached, unless
// the session ends before. It keeps no reference to data. It blocks while the unacked
// messages reach the gateway's limits (hello.limits). If ctx ends meanwhile, the
// session is not affected and the message is not sent. A message larger than the
// gateway allows is ErrTooBig.
func (c *Conn) Write(ctx context.Context, typ MessageType, data []byte) error {
	if typ != MessageText && typ != MessageBinary {
		return fmt.Errorf("write: want MessageText or MessageBinary, got %v", typ)
	}
	if limit := c.maxMessage.Load(); limit > 0 && int64(len(data)) > limit {
		return fmt.Errorf("write: %w: %d bytes, at most %d", ErrTooBig, len(data), limit)
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

// Close ends the session: the game server gets what was written before, then code
// (1000, 1001 or 3000 to 4999) and reason (at most 123 bytes). While detached it waits
// for the next connection, until the grace period is over at the latest. Messages that
// arrive meanwhile are discarded. It returns ErrLost if no gateway takes the close, and a
// *CloseError if the game server or the gateway ended the session first.
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

// CloseNow closes the connection without ending the session: at the gateway it stays
// detached until its grace period is over.
func (c *Conn) CloseNow() {
	c.shut.Do(func() { close(c.closing) })
	c.cut()
	<-c.over
}

// Drop breaks the present connection, as a network failure would. The session resumes.
// It is for tests of applications.
func (c *Conn) Drop() {
	select {
	case c.drops <- struct{}{}:
	case <-c.over:
	}
}
