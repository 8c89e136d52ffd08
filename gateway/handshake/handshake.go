// Package handshake implements the server's side of the WebSocket opening handshake: the
// checks of a request (RFC 6455 section 4.2.1), of Host and Origin, and the 101 that takes
// the connection over.
package handshake

import (
	"encoding/base64"
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Requested reports whether r asks for a WebSocket, RFC 6455 section 4.1, even if the
// handshake is faulty.
func Requested(r *http.Request) bool {
	return httpguts.HeaderValuesContainsToken(r.Header["Upgrade"], "websocket")
}

// A Fault is the error of a handshake, with its HTTP status.
type Fault struct {
	Status int
	Text   string
}

// Check checks what RFC 6455 section 4.2.1 requires of a client. It returns nil for a
// valid handshake.
func Check(r *http.Request) *Fault {
	bad := func(status int, text string) *Fault {
		return &Fault{status, text}
	}
	// By the names as package http stores them: it would allocate others at each call.
	versions, keys := r.Header["Sec-Websocket-Version"], r.Header["Sec-Websocket-Key"]
	switch {
	case r.Method != http.MethodGet:
		return bad(http.StatusMethodNotAllowed, "a WebSocket handshake must be a GET")
	case r.ProtoMajor != 1 || r.ProtoMinor < 1:
		return bad(http.StatusBadRequest, "a WebSocket handshake must use HTTP/1.1")
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return bad(http.StatusBadRequest, "a WebSocket handshake must have no body")
	case !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade"):
		return bad(http.StatusBadRequest, "Connection must contain Upgrade")
	case len(versions) != 1 || versions[0] != "13":
		return bad(http.StatusUpgradeRequired, "Sec-WebSocket-Version must be 13")
	case !validKey(keys):
		return bad(http.StatusBadRequest, "Sec-WebSocket-Key must be 16 bytes in base64, once")
	}
	return nil
}

func validKey(keys []string) bool {
	var b [18]byte // as many as 24 characters may stand for
	if len(keys) != 1 || len(keys[0]) != base64.StdEncoding.EncodedLen(16) {
		return false
	}
	n, err := strict.Decode(b[:], []byte(keys[0]))
	return err == nil && n == 16
}

var strict = base64.StdEncoding.Strict()

// HostAllowed reports whether a Host value matches one of allowed: by name, and by port if
// the allowed one has a port. If allowed is empty, any host matches.
func HostAllowed(allowed []string, host string) bool {
	if len(allowed) == 0 {
		return true
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	for _, a := range allowed {
		if strings.EqualFold(a, host) || strings.EqualFold(strings.Trim(a, "[]"), name) {
			return true
		}
	}
	return false
}
