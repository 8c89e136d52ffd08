package upstream

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// A Request is the handshake that Dial sends.
type Request struct {
	// Path is the client's path, escaped.
	Path string
	// RawQuery is the client's query without the question mark, escaped as the client wrote it.
	RawQuery string
	// ForceQuery sends the question mark even if RawQuery is empty.
	ForceQuery bool
	// Host is the client's Host value; see HostPolicy. May be empty.
	Host string
	// Header is sent unchanged, as RequestHeader returned it. Hop-by-hop headers,
	// Host and those of the handshake itself are omitted.
	Header http.Header
	// Epoch is the value of Reseat-Epoch, which tells an older connection of a session from a
	// newer one. 0 omits it.
	Epoch uint64
	// Protocols are the subprotocols offered, in order. Entries that are not a
	// token (RFC 9110 section 5.6.2) are omitted.
	Protocols []string
}

// A Conn is a WebSocket connection to a game server, just after the handshake.
type Conn struct {
	// Conn is what Target.DialContext returned, or a *tls.Conn on it, without a deadline.
	net.Conn
	// Protocol is the subprotocol that the upstream chose, "" if there is none.
	Protocol string
	// Header is the upstream's answer; see AnswerHeader.
	Header http.Header
	// Early are the bytes that were read together with the response, before those that
	// Conn returns.
	Early []byte
}

// Dial opens a WebSocket connection to the target: RFC 6455 section 4.1. It
// offers no extension and follows no redirect.
//
// ctx bounds the dial and the handshake, not the Conn that Dial returns. The error is a
// *Refusal if the upstream responded with another status than 101; ctx then also bounds
// reading its Body, which the caller must close. Any other error is an *Error.
func (t *Target) Dial(ctx context.Context, r Request) (*Conn, error) {
	conn, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	// When ctx ends, a deadline in the past interrupts the reads and writes below.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	bad := func(p string) bool { return !httpguts.ValidHeaderFieldName(p) }
	if slices.ContainsFunc(r.Protocols, bad) {
		r.Protocols = slices.DeleteFunc(slices.Clone(r.Protocols), bad)
	}
	key := newKey()
	var c *Conn
	var refusal *Refusal
	if _, err = conn.Write(t.requestHead(r, key)); err == nil {
		c, refusal, err = readAnswer(conn, key, r.Protocols)
	}
	switch {
	case refusal != nil:
		refusal.Body = &refusalBody{Reader: refusal.Body, conn: conn, stop: stop}
		return nil, refusal
	case c != nil && stop():
		c.Conn = conn
		return c, nil
	}
	stop()
	conn.Close()
	return nil, t.classify(ctx, BadAnswer, err)
}

// requestHead returns the whole request, for one write.
func (t *Target) requestHead(r Request, key string) []byte {
	b := make([]byte, 0, 512)
	b = append(b, "GET "...)
	b = append(b, t.requestTarget(&r)...)
	b = append(b, " HTTP/1.1\r\n"...)
	b = appendField(b, "Host", t.host(r.Host))
	b = appendField(b, "Connection", "Upgrade")
	b = appendField(b, "Upgrade", "websocket")
	b = appendField(b, "Sec-WebSocket-Version", "13")
	b = appendField(b, "Sec-WebSocket-Key", key)
	if len(r.Protocols) > 0 {
		b = appendField(b, "Sec-WebSocket-Protocol", strings.Join(r.Protocols, ", "))
	}
	if r.Epoch > 0 {
		b = appendField(b, "Reseat-Epoch", strconv.FormatUint(r.Epoch, 10))
	}
	var room [16]string
	names := slices.AppendSeq(room[:0], maps.Keys(r.Header))
	slices.Sort(names)
	for _, name := range names {
		if n := nameOf(name); !n.token || n.hopByHop || n.ofRequest {
			continue
		}
		for _, value := range r.Header[name] {
			b = appendField(b, name, value)
		}
	}
	return append(b, "\r\n"...)
}

// appendField appends one header line. Control characters in the value, above all line
// ends, become spaces.
func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	for _, c := range []byte(strings.TrimSpace(value)) {
		if c < ' ' && c != '\t' || c == 0x7f {
			c = ' '
		}
		b = append(b, c)
	}
	return append(b, "\r\n"...)
}

// newKey returns a new Sec-WebSocket-Key: 16 random bytes in base64.
func newKey() string {
	var nonce [16]byte
	rand.Read(nonce[:]) // never fails: crypto/rand
	return base64.StdEncoding.EncodeToString(nonce[:])
}
