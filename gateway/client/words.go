package client

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"reseat/gateway/wire"
)

const dle = string(rune(wire.DLE))

// A verdict is the argument of end or close.
type verdict struct {
	CloseError
	retry bool
	after time.Duration
}

// A controlMessage is a control message from the gateway. An unknown one has no verb.
type controlMessage struct {
	verb    string
	number  uint64 // ack, part, skip; grace in ms
	text    string // ping, pong; token
	hello   wire.Hello
	verdict verdict // end, close
	within  time.Duration
	lost    bool // upstream
	part    wire.Part
}

// parseControl reads a control message without its DLE, protocol section 5.
func parseControl(text string) (controlMessage, error) {
	verb, arg, has := strings.Cut(text, " ")
	if !wire.IsVerb(verb) || !utf8.ValidString(text) {
		return controlMessage{}, fmt.Errorf("%w: %.20q is no verb", errBroken, verb)
	}
	w := controlMessage{verb: verb}
	ok := true
	switch verb {
	case wire.VerbAck, wire.VerbGrace, wire.VerbPart:
		w.number, ok = wire.ParseNumber(arg)
	case wire.VerbSkip:
		w.number, ok = wire.ParseNumber(arg)
		ok = ok && w.number > 0
	case wire.VerbPing, wire.VerbPong:
		w.text, ok = arg, !has || arg != "" && utf8.RuneCountInString(arg) <= 32
	case wire.VerbHello:
		ok = object(arg, &w.hello) && w.hello.Token != "" && w.hello.Session != "" && w.hello.Grace >= 0 && w.hello.Heartbeat >= 0 && w.hello.Answer >= 0 && w.hello.PartBytes >= 0
		ok = ok && (w.hello.Partial == nil || w.hello.Partial.Down >= 0 && w.hello.Partial.Up >= 0)
	case wire.VerbToken:
		var t struct{ Token string }
		ok = object(arg, &t) && t.Token != ""
		w.text = t.Token
	case wire.VerbMove:
		var m struct {
			Within int64 `json:"within_ms"`
		}
		ok = object(arg, &m) && m.Within >= 0
		w.within = milliseconds(m.Within)
	case wire.VerbParts:
		ok = object(arg, &w.part) && w.part.From >= 0 && w.part.From < w.part.Bytes
	case wire.VerbUpstream:
		var u wire.Upstream
		ok = object(arg, &u)
		w.lost = u.State == wire.UpstreamLost
		if ok && !w.lost && u.State != wire.UpstreamBack {
			return controlMessage{}, nil // later versions may add states
		}
	case wire.VerbEnd, wire.VerbClose:
		w.verdict, ok = parseVerdict(verb, arg)
	case wire.VerbBye, wire.VerbLeaving:
		ok = false
	default:
		return controlMessage{}, nil // later versions may add verbs
	}
	if !ok {
		return controlMessage{}, fmt.Errorf("%w: bad argument of %s", errBroken, verb)
	}
	return w, nil
}

// parseVerdict reads the argument of end or close. Without retry, close means retry.
func parseVerdict(verb, arg string) (verdict, bool) {
	v := struct {
		Code   int
		Reason string
		Retry  *bool
		Status int
		After  int64 `json:"retry_after_ms"`
	}{}
	if !object(arg, &v) || v.Code < 1000 || v.Code > 4999 || v.After < 0 {
		return verdict{}, false
	}
	end := verb == wire.VerbEnd
	return verdict{
		CloseError: CloseError{Code: v.Code, Reason: v.Reason, FromServer: end, Status: v.Status},
		retry:      !end && (v.Retry == nil || *v.Retry),
		after:      milliseconds(v.After),
	}, true
}

func object(arg string, v any) bool {
	return strings.HasPrefix(arg, "{") && json.Unmarshal([]byte(arg), v) == nil
}

// milliseconds converts a duration of the gateway, capped at a year.
func milliseconds(n int64) time.Duration {
	const year = 365 * 24 * 3600 * 1000
	return time.Duration(min(n, year)) * time.Millisecond
}

// isControl reports whether a message is a control message (section 3).
func isControl(typ MessageType, data []byte) bool {
	return typ == MessageText && len(data) > 0 && data[0] == wire.DLE && (len(data) == 1 || data[1] != wire.DLE)
}

// escape doubles the DLE at the start of text that begins with one (protocol section 3).
func escape(typ MessageType, data []byte) []byte {
	if typ == MessageText && len(data) > 0 && data[0] == wire.DLE {
		return append([]byte{wire.DLE}, data...)
	}
	return data
}

// unescape removes the additional DLE of escape. It must not be called with a
// control message.
func unescape(typ MessageType, data []byte) []byte {
	if typ == MessageText && len(data) > 0 && data[0] == wire.DLE {
		return data[1:]
	}
	return data
}
