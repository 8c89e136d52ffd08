package upstream

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
)

// A Refusal is a response of the upstream other than 101. It is an error of
// Dial. Redirects are refusals like others.
type Refusal struct {
	// Status is from 200 to 999.
	Status int
	// Header is that of the response, without Transfer-Encoding.
	Header http.Header
	// ContentLength is the length of Body in bytes, -1 if unknown.
	ContentLength int64
	// Body is the whole body. Reading ends early, with an error, when the context
	// of Dial ends. It must be closed, which closes the upstream's connection.
	Body io.ReadCloser
}

func (r *Refusal) Error() string { return fmt.Sprintf("upstream refused with status %d", r.Status) }

// WriteRefusal passes a refusal to a client of HTTP/1.1: status, end-to-end headers except
// Reseat-*, and the whole body. It closes the body, and then the client's connection. If
// the body is truncated, it writes what there is and panics with http.ErrAbortHandler, so
// that the client detects it.
func WriteRefusal(w http.ResponseWriter, r *Refusal) {
	defer r.Body.Close()
	h := w.Header()
	h["Content-Type"] = nil // none, rather than net/http's guess
	maps.Copy(h, passed(r.Header, r.Status, isContentLength))
	h.Set("Connection", "close")
	if r.Status == http.StatusUpgradeRequired {
		RequireUpgrade(h)
	}
	if r.ContentLength >= 0 && bodyAllowed(r.Status) {
		h.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
	w.WriteHeader(r.Status)
	if !bodyAllowed(r.Status) {
		return
	}
	if _, err := io.Copy(w, r.Body); err != nil {
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

func isContentLength(n *fieldName) bool { return n.folded == "content-length" }

// bodyAllowed reports whether an answer of that status may have a body: RFC 9110
// section 6.4.1.
func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// A refusalBody closes the connection together with the body.
type refusalBody struct {
	io.Reader
	conn net.Conn
	stop func() bool // detaches conn from the context
}

// Close closes the connection. The rest of the body is not read.
func (b *refusalBody) Close() error {
	b.stop()
	return b.conn.Close()
}
