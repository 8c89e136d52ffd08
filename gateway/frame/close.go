package frame

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"unicode/utf8"
)

// NoStatus stands for a Close frame without a code, RFC 6455 section 7.4.1.
const NoStatus = 1005

// MaxReason is the longest close reason in bytes: a control frame less the code.
const MaxReason = MaxControl - 2

// ErrClose is a Close frame that RFC 6455 forbids: one byte of payload, or a code
// that must not travel (close code 1002).
var ErrClose = errors.New("forbidden close frame")

// ErrCloseReason is a Close frame whose reason is not UTF-8: close code 1007, RFC
// 6455 section 8.1.
var ErrCloseReason = errors.New("close reason is not UTF-8")

// ParseClose reads an unmasked Close payload; an empty one is NoStatus.
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

// ValidCode reports whether code may travel in a Close frame: RFC 6455 section
// 7.4 and the codes registered since, which end at 1014.
func ValidCode(code int) bool {
	switch {
	case code >= 1000 && code <= 1003, code >= 1007 && code <= 1014:
		return true
	}
	return code >= 3000 && code <= 4999
}

// ClosePayload builds the payload of a Close frame. NoStatus gives an empty
// one; a reason that is too long is cut at a character's end.
func ClosePayload(code int, reason string) []byte {
	if code == NoStatus {
		return nil
	}
	p := binary.BigEndian.AppendUint16(nil, uint16(code))
	return append(p, Clip(reason, MaxReason)...)
}

// Clip cuts s to at most n bytes without tearing a character.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// AcceptKey answers a Sec-WebSocket-Key, RFC 6455 section 4.2.2.
func AcceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
