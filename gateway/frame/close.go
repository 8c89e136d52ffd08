package frame

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"unicode/utf8"
)

// NoStatus represents a Close frame without a code, RFC 6455 section 7.4.1.
const NoStatus = 1005

// MaxReason is the max length of a close reason in bytes: MaxControl less the code.
const MaxReason = MaxControl - 2

// ErrClose means a Close frame that RFC 6455 forbids: one byte of payload, or a code
// that must not be sent. The close code for it is 1002.
var ErrClose = errors.New("forbidden close frame")

// ErrCloseReason means a Close frame whose reason is not UTF-8. The close code for it
// is 1007, RFC 6455 section 8.1.
var ErrCloseReason = errors.New("close reason is not UTF-8")

// ParseClose reads an unmasked Close payload; an empty one has the code NoStatus. Its
// error is ErrClose or ErrCloseReason.
func ParseClose(p []byte) (code int, reason string, err error) {
	if len(p) == 0 {
		return NoStatus, "", nil
	}
	if len(p) == 1 {
		return 0, "", ErrClose
	}
	code = int(binary.BigEndian.Uint16(p))
	if !ValidCode(code) {
		return 0, "", ErrClose
	}
	if !utf8.Valid(p[2:]) {
		return 0, "", ErrCloseReason
	}
	return code, string(p[2:]), nil
}

// ValidCode reports whether code may be sent in a Close frame: RFC 6455 section 7.4,
// and the codes registered since, up to 1014.
func ValidCode(code int) bool {
	switch {
	case code >= 1000 && code <= 1003, code >= 1007 && code <= 1014:
		return true
	}
	return code >= 3000 && code <= 4999
}

// ClosePayload returns the payload of a Close frame, nil for NoStatus. It truncates a
// reason that is too long between characters.
func ClosePayload(code int, reason string) []byte {
	if code == NoStatus {
		return nil
	}
	p := binary.BigEndian.AppendUint16(nil, uint16(code))
	return append(p, Clip(reason, MaxReason)...)
}

// Clip truncates s to at most n bytes, between characters.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// AcceptKey returns the Sec-WebSocket-Accept for a key, RFC 6455 section 4.2.2.
func AcceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
