package handshake

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"reseat/gateway/deflate"
	"reseat/gateway/frame"
	"reseat/gateway/transport/rawconn"
)

// writeTimeout bounds the time in which a client must receive its 101.
const writeTimeout = 5 * time.Second

// An Answer is the content of a 101 besides the key.
type Answer struct {
	Protocol string      // the subprotocol; "" if there is none
	Header   http.Header // further headers
	// Deflate negotiates permessage-deflate (RFC 7692) if the client offers it. Nil turns
	// it off.
	Deflate *deflate.Options
	// More says that the gateway sends more at once, which may go along.
	More bool
}

// Switch answers 101 and takes the connection over. early is what the client has already
// sent after its handshake; conn will not return it. The request must have passed Check. A client
// that has gone, as the request's context says, gets no answer: a socket would still accept one.
func (a *Answer) Switch(w http.ResponseWriter, r *http.Request) (conn net.Conn, early []byte, err error) {
	if err := context.Cause(r.Context()); err != nil {
		return nil, nil, fmt.Errorf("the client has gone: %w", err)
	}
	conn, early, err = Hijack(w)
	if err != nil {
		return nil, nil, fmt.Errorf("hijack the connection: %w", err)
	}
	var params deflate.Params
	deflated := false
	if a.Deflate != nil {
		params, deflated = deflate.Negotiate(r.Header, a.Deflate.Window)
	}
	b := bytes.NewBuffer(make([]byte, 0, 256))
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ")
	b.WriteString(frame.AcceptKey(r.Header.Get("Sec-Websocket-Key")))
	if a.Protocol != "" {
		b.WriteString("\r\nSec-WebSocket-Protocol: " + a.Protocol)
	}
	if deflated {
		b.WriteString("\r\nSec-WebSocket-Extensions: " + params.String())
	}
	b.WriteString("\r\n")
	a.Header.Write(b)
	b.WriteString("\r\n")
	if err := a.write(conn, b.Bytes()); err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("answer the handshake: %w", err)
	}
	if deflated {
		return deflate.NewConn(rawconn.Quiet(conn), early, params, *a.Deflate), nil, nil
	}
	return conn, early, nil
}

// Hijack takes a client's connection over, with what the client has sent after its request.
func Hijack(w http.ResponseWriter) (conn net.Conn, early []byte, err error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if n := rw.Reader.Buffered(); n > 0 {
		p, _ := rw.Reader.Peek(n)
		early = append(early, p...)
	}
	if c, ok := conn.(interface{ Unwrap() (net.Conn, []byte) }); ok {
		below, rest := c.Unwrap()
		conn, early = below, append(early, rest...)
	}
	return conn, early, nil
}

// write writes the 101. Most sockets accept it at once; then no deadline is needed.
func (a *Answer) write(conn net.Conn, b []byte) error {
	if c, ok := conn.(interface {
		TryWrite(p []byte, more bool) (int, error)
	}); ok {
		n, err := c.TryWrite(b, a.More)
		if b = b[n:]; err != nil || len(b) == 0 {
			return err
		}
	}
	conn.SetDeadline(time.Now().Add(writeTimeout))
	if _, err := conn.Write(b); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}
