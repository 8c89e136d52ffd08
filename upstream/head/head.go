// Package head parses the heads of plain HTTP/1.1 messages, and leaves all others to net/http.
// A WebSocket handshake is such a message nearly always, and net/http takes four times as long
// for it, with twice the garbage.
package head

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
)

// A Head is a first line and the fields behind it.
type Head struct {
	Line   string
	Header http.Header // by canonical names; without Host
	Host   []string
	Size   int // of the head in bytes, with the empty line
}

// maxFields is the maximum number of fields of a plain head.
const maxFields = 64

// Parse parses the head that b begins with as net/http does. It reports false for anything that is
// not plain: an incomplete head, a line that is folded or does not end with CRLF, a name with
// other than letters, digits and hyphens, a value with other than visible ASCII and spaces, and
// fields that concern a body. All strings share their memory: clone a string before keeping it.
func Parse(b []byte) (h Head, ok bool) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return h, false
	}
	h.Size = end + 4
	s := string(b[:end+2])
	h.Line, s, _ = strings.Cut(s, "\r\n")
	n := strings.Count(s, "\r\n")
	if n > maxFields || !visible(h.Line) {
		return h, false
	}
	h.Header = make(http.Header, n)
	values := make([]string, n)
	for i := range values {
		var line string
		line, s, _ = strings.Cut(s, "\r\n")
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isName(name) || !visible(value) {
			return h, false
		}
		name, value = canonical(name), strings.Trim(value, " ")
		switch name {
		case "Content-Length", "Transfer-Encoding", "Trailer", "Expect":
			return h, false
		case "Host":
			h.Host = append(h.Host, value)
			continue
		}
		values[i] = value
		if older := h.Header[name]; older != nil {
			h.Header[name] = append(older, value)
		} else {
			h.Header[name] = values[i : i+1 : i+1]
		}
	}
	// As net/http: RFC 9111 section 5.4.
	if p := h.Header["Pragma"]; len(p) > 0 && p[0] == "no-cache" && h.Header["Cache-Control"] == nil {
		h.Header["Cache-Control"] = []string{"no-cache"}
	}
	return h, true
}

// canonical is textproto.CanonicalMIMEHeaderKey, without garbage for what a handshake has.
func canonical(name string) string {
	switch name {
	case "Sec-WebSocket-Key":
		return "Sec-Websocket-Key"
	case "Sec-WebSocket-Version":
		return "Sec-Websocket-Version"
	case "Sec-WebSocket-Protocol":
		return "Sec-Websocket-Protocol"
	case "Sec-WebSocket-Extensions":
		return "Sec-Websocket-Extensions"
	case "Sec-WebSocket-Accept":
		return "Sec-Websocket-Accept"
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}

func visible(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// isName reports whether s consists of letters, digits and hyphens, as all names do that matter.
func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return s != ""
}
