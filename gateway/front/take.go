package front

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
)

// Hijack takes a client's connection over, with what the client has sent after its request.
func Hijack(w http.ResponseWriter) (conn net.Conn, early []byte, err error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, _ = rw.Reader.Peek(rw.Reader.Buffered())
	if c, ok := conn.(interface{ Unwrap() (net.Conn, []byte) }); ok {
		var rest []byte
		conn, rest = c.Unwrap()
		early = append(early, rest...)
	}
	return conn, early, nil
}

// Head is r as on the wire. A handshake has no body.
func Head(r *http.Request) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.RequestURI, r.Host)
	r.Header.Write(&b)
	b.WriteString("\r\n")
	return b.Bytes()
}
