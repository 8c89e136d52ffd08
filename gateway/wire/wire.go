// Package wire is the protocol reseat.v1 as pure functions: the subprotocol
// offer, control messages and close codes. It has no connection and no state.
//
//	data message        as the application sent it; text that begins with DLE
//	                    gets one more DLE in front
//	control message     DLE verb [SP argument], always text
package wire

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Subprotocol is offered by resumable clients, and selected by the gateway.
const Subprotocol = "reseat.v1"

// Parts is offered by a client that takes large messages in parts, protocol section 3. One that also goes on
// inside a message, in both directions, offers PrefixPartial with what it holds.
const Parts = "reseat.parts"

// Skip is offered by a client that takes the verb skip, protocol section 3.
const Skip = "reseat.skip"

// ProbeQuery is the query of a request that asks whether a gateway is there: protocol section 2.
const ProbeQuery = "reseat.alive"

// Refusals is offered by a client that accepts the refusal of its first handshake as a
// close message, protocol section 2.
const Refusals = "reseat.refusals"

// DLE begins a control message; doubled, it begins a text that begins with DLE.
const DLE = 0x10

// Verbs, protocol section 5.
const (
	VerbHello = "hello"
	VerbAck   = "ack"
	VerbToken = "token"
	VerbGrace = "grace"
	VerbPing  = "ping"
	VerbPong  = "pong"
	VerbBye   = "bye"
	VerbMove  = "move"
	VerbEnd   = "end"
	VerbClose = "close"

	VerbUpstream = "upstream"
	VerbParts    = "parts"
	VerbPart     = "part"
	VerbLeaving  = "leaving"
	VerbSkip     = "skip"
)

// Errors of ParseClient. The close code for ErrUTF8 is 1007, for the others
// 4400.
var (
	ErrUTF8      = errors.New("control message is not UTF-8")
	ErrVerb      = errors.New("control message without a verb of 1 to 16 letters a-z")
	ErrArgument  = errors.New("bad argument")
	ErrDirection = errors.New("verb that only the gateway sends")
)

// A Message is a control message from a client. Verb is empty if it is unknown; the
// message must then be ignored.
type Message struct {
	Verb string
	Ack  uint64 // ack, part
	Arg  string // ping, pong
	Bye  Bye    // bye
	Part Part   // parts
}

// Bye is the argument of bye; without one the code is 1000.
type Bye struct {
	Code   int    `json:"code"`
	Reason string `json:"reason"`
}

// ParseClient reads a client's control message without its leading DLE. Its error is
// one of those above.
func ParseClient(b []byte) (Message, error) {
	if !utf8.Valid(b) {
		return Message{}, ErrUTF8
	}
	verb, arg, has := strings.Cut(string(b), " ")
	if !IsVerb(verb) {
		return Message{}, ErrVerb
	}
	m := Message{Verb: verb, Arg: arg}
	var ok bool
	switch verb {
	case VerbAck, VerbPart:
		m.Ack, ok = ParseNumber(arg)
	case VerbPing, VerbPong:
		ok = isPingArg(arg, has)
	case VerbBye:
		m.Bye, ok = parseBye(arg, has)
	case VerbParts:
		m.Part, ok = parsePart(arg)
	case VerbLeaving:
		ok = !has
	case VerbHello, VerbToken, VerbGrace, VerbMove, VerbEnd, VerbClose, VerbUpstream, VerbSkip:
		return Message{}, ErrDirection
	default:
		return Message{}, nil
	}
	if !ok {
		return Message{}, ErrArgument
	}
	return m, nil
}

// IsVerb reports whether s can be a verb: 1 to 16 small letters.
func IsVerb(s string) bool {
	if len(s) < 1 || len(s) > 16 {
		return false
	}
	for i := range len(s) {
		if s[i] < 'a' || s[i] > 'z' {
			return false
		}
	}
	return true
}

// isPingArg reports whether arg is 1 to 32 characters without control characters and
// without leading, trailing or repeated spaces (protocol section 5), or absent.
func isPingArg(arg string, has bool) bool {
	if !has {
		return true
	}
	if arg == "" || arg[0] == ' ' || arg[len(arg)-1] == ' ' || strings.Contains(arg, "  ") {
		return false
	}
	return utf8.RuneCountInString(arg) <= 32 && strings.IndexFunc(arg, unicode.IsControl) < 0
}

// ParseNumber reads 1 to 16 decimal digits.
func ParseNumber(s string) (uint64, bool) {
	if len(s) < 1 || len(s) > 16 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}
