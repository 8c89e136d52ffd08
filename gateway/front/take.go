package front

import (
	"bytes"
	"fmt"
	"net/http"
)

// Head is r as on the wire. A handshake has no body.
func Head(r *http.Request) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.RequestURI, r.Host)
	r.Header.Write(&b)
	b.WriteString("\r\n")
	return b.Bytes()
}
