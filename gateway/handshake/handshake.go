// Package handshake is the server's side of the WebSocket opening handshake: what a
// request must have (RFC 6455 section 4.2.1), which Host and Origin may pass, and the
// 101 that takes the connection over.
package handshake

import (
	"encoding/base64"
	"net"
	"net/http"
	"strings"
)

// Requested reports whether r asks for a WebSocket, RFC 6455 section 4.1,
// well or badly.
func Requested(r *http.Request) bool {
	return hasToken(r.Header, "Upgrade", "websocket")
}

// A Fault is what is wrong with a handshake, and the HTTP status that says so.
type Fault struct {
	Status int
	Text   string
}

// Check verifies what RFC 6455 section 4.2.1 requires of a client; nil for a good
// handshake.
func Check(r *http.Request) *Fault {
	bad := func(status int, text string) *Fault {
		return &Fault{status, text}
	}
	switch {
	case r.Method != http.MethodGet:
		return bad(http.StatusMethodNotAllowed, "a WebSocket handshake is a GET")
	case r.ProtoMajor != 1 || r.ProtoMinor < 1:
		return bad(http.StatusBadRequest, "a WebSocket handshake is HTTP/1.1")
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return bad(http.StatusBadRequest, "a WebSocket handshake has no body")
	case !hasToken(r.Header, "Connection", "upgrade"):
		return bad(http.StatusBadRequest, "Connection does not say Upgrade")
	case len(r.Header.Values("Sec-WebSocket-Version")) != 1 || r.Header.Get("Sec-WebSocket-Version") != "13":
		return bad(http.StatusUpgradeRequired, "Sec-WebSocket-Version must be 13")
	case !validKey(r.Header.Values("Sec-WebSocket-Key")):
		return bad(http.StatusBadRequest, "Sec-WebSocket-Key must be 16 bytes in base64, once")
	}
	return nil
}

func validKey(keys []string) bool {
	if len(keys) != 1 {
		return false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(keys[0])
	return err == nil && len(b) == 16
}

// hasToken reports whether a comma-separated header holds a token, in any case.
func hasToken(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for t := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(t, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// HostAllowed reports whether a Host value is one of those allowed: by name
// alone, or with the port where the allowed one has a port. None allow any.
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
