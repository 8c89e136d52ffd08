package gateway

import (
	"encoding/base64"
	"net"
	"net/http"
	"strings"
)

// isHandshake reports whether r asks for a WebSocket, RFC 6455 section 4.1,
// well or badly.
func isHandshake(r *http.Request) bool {
	return hasToken(r.Header, "Upgrade", "websocket")
}

// A badHandshake is what is wrong with a handshake, and its HTTP status.
type badHandshake struct {
	status int
	label  string
	text   string
}

// checkHandshake verifies what RFC 6455 section 4.2.1 asks of a client; nil
// where all is well.
func checkHandshake(r *http.Request) *badHandshake {
	bad := func(status int, text string) *badHandshake {
		return &badHandshake{status, "bad_handshake", text}
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

// hostAllowed reports whether a Host value is one of those allowed: by name
// alone, or with the port where the allowed one has a port. None allow any.
func hostAllowed(allowed []string, host string) bool {
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
