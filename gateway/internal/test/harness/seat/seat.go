// Package seat is one connection of a client that speaks reseat.v1, written from
// docs/protocol.md on top of coder/websocket. It shares no code with the gateway or the
// clients.
package seat

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// errEnded replaces the errors for an end of stream, io.ErrUnexpectedEOF included. The
// library treats an end right after a frame's header as an empty message, and one
// within a compressed message as its end.
var errEnded = errors.New("the connection has ended")

// A wholeConn is a connection whose end of stream is always an error.
type wholeConn struct {
	net.Conn
	heard func() // called when bytes have arrived; may be nil
}

func (c wholeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.heard != nil {
		c.heard()
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF { // the latter by TLS
		err = errEnded
	}
	return n, err
}

type (
	pathKey  struct{}
	heardKey struct{}
)

// Client returns an http.Client for Dial through a fault proxy with Told: connections announce to it,
// on a line of its own, the path that they will request, because it could not read it under TLS.
func Client(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialTold,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialTold(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			secure := tls.Client(c, config)
			if err := secure.HandshakeContext(ctx); err != nil {
				c.Close()
				return nil, err
			}
			return wholeConn{Conn: secure}, nil
		}}}
}

// DialTCP dials for an http.Client that is passed to Dial.
func DialTCP(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	heard, _ := ctx.Value(heardKey{}).(func())
	return wholeConn{c, heard}, nil
}

// dialTold connects to a fault proxy with Told.
func dialTold(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := DialTCP(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	path, _ := ctx.Value(pathKey{}).(string)
	if _, err := fmt.Fprintf(c, "FAULTS %s -\r\n", path); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// An Offer is what a client presents in a handshake.
type Offer struct {
	Token    string // "": a new session
	Received uint64
	Acked    uint64 // of its own messages: the newest that it knows to be held,
	Sent     uint64 // and the newest that it gave to a connection
	Headers  bool   // in request headers instead of subprotocol entries
	Plain    bool   // don't offer reseat.v1
	Skips    bool   // take the verb skip
	Parts    bool   // take and send large messages in parts,
	Held     int    // and hold so many bytes of message Received + 1
	Compress bool
	Cookie   string // a plain client's session cookie
	Origin   string
	Pinged   func() // called at each Ping
	Heard    func() // called whenever bytes have arrived
}

func (o Offer) options(client *http.Client) *websocket.DialOptions {
	opts := &websocket.DialOptions{HTTPClient: client, HTTPHeader: http.Header{}}
	if o.Compress {
		opts.CompressionMode = websocket.CompressionContextTakeover
	}
	if o.Pinged != nil {
		opts.OnPingReceived = func(context.Context, []byte) bool {
			o.Pinged()
			return true
		}
	}
	for name, value := range map[string]string{"Cookie": o.Cookie, "Origin": o.Origin} {
		if value != "" {
			opts.HTTPHeader.Set(name, value)
		}
	}
	if o.Plain {
		return opts
	}
	opts.Subprotocols = []string{"reseat.v1"}
	if o.Skips {
		opts.Subprotocols = append(opts.Subprotocols, "reseat.skip")
	}
	if o.Parts {
		opts.Subprotocols = append(opts.Subprotocols, "reseat.parts", fmt.Sprint("reseat.partial.", o.Held))
	}
	n := strconv.FormatUint(o.Received, 10)
	switch {
	case o.Headers:
		opts.HTTPHeader.Set("Reseat-Settled", fmt.Sprint(o.Acked, " ", o.Sent))
	default:
		opts.Subprotocols = append(opts.Subprotocols, fmt.Sprintf("reseat.settled.%d.%d", o.Acked, o.Sent))
	}
	switch {
	case o.Token == "":
	case o.Headers:
		opts.HTTPHeader.Set("Reseat-Token", o.Token)
		opts.HTTPHeader.Set("Reseat-Received", n)
	default:
		opts.Subprotocols = append(opts.Subprotocols, "reseat.token."+o.Token, "reseat.received."+n)
	}
	return opts
}

// A Conn is a connection. One goroutine may read; any may write.
type Conn struct {
	Cookie     string // set by the response, as it must be sent back
	Compressed bool

	ws    *websocket.Conn
	plain bool
}

// Dial connects. status is the response's if it is not 101.
func Dial(ctx context.Context, client *http.Client, address string, o Offer) (c *Conn, status int, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, 0, err
	}
	ctx = context.WithValue(context.WithValue(ctx, pathKey{}, u.RequestURI()), heardKey{}, o.Heard)
	ws, resp, err := websocket.Dial(ctx, address, o.options(client))
	if err != nil {
		if resp != nil {
			status = resp.StatusCode
		}
		return nil, status, err
	}
	ws.SetReadLimit(-1)
	if !o.Plain && ws.Subprotocol() != "reseat.v1" {
		ws.CloseNow()
		return nil, 0, fmt.Errorf("the gateway chose subprotocol %q", ws.Subprotocol())
	}
	c = &Conn{ws: ws, plain: o.Plain, Compressed: resp.Header.Get("Sec-WebSocket-Extensions") != ""}
	for _, cookie := range resp.Cookies() {
		c.Cookie = cookie.Name + "=" + cookie.Value
	}
	return c, 101, nil
}

// A Message is what was received: data, or a control message with its verb.
type Message struct {
	Verb string // "": data
	Arg  string
	Text bool
	Data []byte
}

const dle = 0x10

// Read reads the next message. The library answers Pings and Close frames.
func (c *Conn) Read(ctx context.Context) (Message, error) {
	kind, p, err := c.ws.Read(ctx)
	switch {
	case err != nil:
		return Message{}, err
	case kind != websocket.MessageText || c.plain || len(p) == 0 || p[0] != dle:
		return Message{Text: kind == websocket.MessageText, Data: p}, nil
	case len(p) > 1 && p[1] == dle:
		return Message{Text: true, Data: p[1:]}, nil
	}
	verb, arg, _ := strings.Cut(string(p[1:]), " ")
	if verb == "" {
		return Message{}, fmt.Errorf("a control message without a verb: %q", p)
	}
	return Message{Verb: verb, Arg: arg}, nil
}

// Send sends data.
func (c *Conn) Send(ctx context.Context, text bool, p []byte) error {
	if !text {
		return c.ws.Write(ctx, websocket.MessageBinary, p)
	}
	if !c.plain && len(p) > 0 && p[0] == dle {
		p = append([]byte{dle}, p...)
	}
	return c.ws.Write(ctx, websocket.MessageText, p)
}

// Say sends a control message.
func (c *Conn) Say(ctx context.Context, verb, arg string) error {
	if arg != "" {
		verb += " " + arg
	}
	return c.ws.Write(ctx, websocket.MessageText, []byte("\x10"+verb))
}

// Ack acks the messages up to n.
func (c *Conn) Ack(ctx context.Context, n uint64) error {
	return c.Say(ctx, "ack", strconv.FormatUint(n, 10))
}

// Close closes the connection with a Close frame, and waits for the answer.
func (c *Conn) Close(code int, reason string) error {
	return c.ws.Close(websocket.StatusCode(code), reason)
}

// Drop closes the connection without one.
func (c *Conn) Drop() { c.ws.CloseNow() }

// CloseOf returns the code of the Close frame that ended a connection, or -1.
func CloseOf(err error) int { return int(websocket.CloseStatus(err)) }

// A Hello is the argument of hello.
type Hello struct {
	Session  string
	Token    string
	Resumed  bool
	Durable  bool
	Moved    string
	Received uint64
	Lost     uint64
	Replay   uint64
	Skipped  uint64
	AnswerMS int64 `json:"answer_ms"`
	Part     int   `json:"part_bytes"`
	Partial  *struct{ Down, Up int }
	Limits   struct {
		Messages uint64 `json:"unacked_messages"`
		Bytes    uint64 `json:"unacked_bytes"`
	}
}

// A Closing is the argument of close and of end.
type Closing struct {
	Code         int
	Reason       string
	Retry        bool
	RetryAfterMS int64 `json:"retry_after_ms"`
}

// Hello reads the first message of a connection: exactly one of the results is not nil.
func (c *Conn) Hello(ctx context.Context) (*Hello, *Closing, error) {
	m, err := c.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	switch m.Verb {
	case "hello":
		h := new(Hello)
		return h, nil, json.Unmarshal([]byte(m.Arg), h)
	case "close":
		k := new(Closing)
		return nil, k, json.Unmarshal([]byte(m.Arg), k)
	}
	return nil, nil, fmt.Errorf("the first message is neither hello nor close: %q %q", m.Verb, m.Arg)
}

// Gen returns the generation in a token.
func Gen(token string) int {
	gen, _ := Claims(token)
	return gen
}

// Claims returns the generation in a token, and the node that has the session; "": the one that began it.
func Claims(token string) (gen int, owner string) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return -1, ""
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Gen int
		Own string
	}
	if err != nil || json.Unmarshal(b, &claims) != nil {
		return -1, ""
	}
	return claims.Gen, claims.Own
}

// Epoch returns that of a generation: how often the session has changed its node.
func Epoch(gen int) uint64 { return uint64(max(gen, 0)) >> 20 }
