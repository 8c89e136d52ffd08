package wire

import (
	"encoding/json"
	"slices"
	"strconv"

	"reseat/gateway/frame"
	"reseat/tokens/strict"
)

// Hello is the argument of hello, protocol section 5.
type Hello struct {
	Session   string `json:"session"`
	Token     string `json:"token"`
	Resumed   bool   `json:"resumed"`
	Received  uint64 `json:"received"`
	Lost      uint64 `json:"lost"`
	Replay    uint64 `json:"replay"`
	Skipped   uint64 `json:"skipped,omitempty"`
	Grace     int64  `json:"grace_ms"`
	Heartbeat int64  `json:"heartbeat_ms"`
	Answer    int64  `json:"answer_ms"`
	Protocol  string `json:"protocol"`
	Limits    Limits `json:"limits"`
	Route     string `json:"route,omitempty"` // see ValidRoute
	// Durable: the session outlives its node. Moved is how it came to another one, until the client
	// has been heard there: one of the constants below, or "".
	Durable bool   `json:"durable,omitempty"`
	Moved   string `json:"moved,omitempty"`
	// PartBytes: larger messages come in parts of at most this size; zero: they do not.
	PartBytes int64 `json:"part_bytes,omitempty"`
	// Partial: parts come and go in both directions, and a message is gone on with where it was cut.
	Partial *Partial `json:"partial,omitempty"`
	Probe   bool     `json:"probe,omitempty"` // the gateway answers requests with the query ProbeQuery
}

// The values of Hello.Moved.
const (
	MovedFailover = "failover" // its node was lost
	MovedHandoff  = "handoff"  // its node has handed it over whole
)

// Limits say how much a client may have sent without an ack.
type Limits struct {
	MessageBytes    int64 `json:"message_bytes"`
	UnackedMessages int64 `json:"unacked_messages"`
	UnackedBytes    int64 `json:"unacked_bytes"`
}

// Partial says how many bytes of a message, as it is on the wire, need not be sent again.
type Partial struct {
	Down int64 `json:"down"` // of the first message that the gateway sends
	Up   int64 `json:"up"`   // of the first that the client sends
}

// Part is the argument of parts.
type Part struct {
	Bytes int64 `json:"bytes"` // of the whole message
	Text  bool  `json:"text"`
	From  int64 `json:"from,omitempty"` // where the parts that follow begin
}

// Upstream is the argument of upstream.
type Upstream struct {
	State string `json:"state"`
}

// The states of Upstream.
const (
	UpstreamLost = "lost"
	UpstreamBack = "back"
)

// Ending is the argument of end.
type Ending struct {
	Code   int    `json:"code"`
	Reason string `json:"reason"`
}

// Closing is the argument of close. All members but Status are always present, because
// clients may be written in languages whose decoders require them.
type Closing struct {
	Code       int    `json:"code"`
	Status     int    `json:"status,omitempty"` // of a refused first handshake, for clients that offer reseat.refusals
	Reason     string `json:"reason"`
	Retry      bool   `json:"retry"`
	RetryAfter int64  `json:"retry_after_ms"` // 0: no delay
}

// Append appends the frame of a control message with a plain argument. An empty one
// is omitted, with its space.
func Append[T string | []byte](dst []byte, verb string, arg T) []byte {
	n := 1 + len(verb)
	if len(arg) > 0 {
		n += 1 + len(arg)
	}
	dst = slices.Grow(dst, frame.MaxHeader+n)
	dst = append(frame.AppendHeader(dst, frame.Text, true, n), DLE)
	dst = append(dst, verb...)
	if len(arg) > 0 {
		dst = append(append(dst, ' '), arg...)
	}
	return dst
}

// AppendAck appends the frame of an ack.
func AppendAck(dst []byte, n uint64) []byte {
	var digits [20]byte
	d := strconv.AppendUint(digits[:0], n, 10)
	dst = append(frame.AppendHeader(dst, frame.Text, true, 5+len(d)), DLE, 'a', 'c', 'k', ' ')
	return append(dst, d...)
}

// AppendJSON appends the frame of a control message with a JSON argument.
func AppendJSON(dst []byte, verb string, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("wire: " + err.Error()) // structs of strings and numbers only
	}
	return Append(dst, verb, b)
}

// AppendClosing appends close and the Close frame with its code.
func AppendClosing(dst []byte, c Closing) []byte {
	c.Reason = frame.Clip(c.Reason, frame.MaxReason)
	dst = AppendJSON(dst, VerbClose, c)
	return frame.Append(dst, frame.Close, frame.ClosePayload(c.Code, c.Reason))
}

// maxMembers leaves room for members that later versions may add.
const maxMembers = 32

// parseBye reads the argument of bye.
func parseBye(arg string, has bool) (Bye, bool) {
	b := Bye{Code: 1000}
	if !has {
		return b, true
	}
	o, ok := parseObject(arg)
	ok = ok && decode(o, "code", &b.Code) && decode(o, "reason", &b.Reason)
	return b, ok && ByeCode(b.Code) && len(b.Reason) <= frame.MaxReason
}

// parsePart reads the argument of parts.
func parsePart(arg string) (p Part, ok bool) {
	o, ok := parseObject(arg)
	ok = ok && decode(o, "bytes", &p.Bytes) && decode(o, "text", &p.Text) && decode(o, "from", &p.From)
	return p, ok && p.From >= 0 && p.From < p.Bytes
}

// parseObject reads an object without repeated members, nor white space around it. Unknown members are
// ignored, and names compared exactly.
func parseObject(arg string) (strict.Object, bool) {
	if len(arg) < 2 || arg[0] != '{' || arg[len(arg)-1] != '}' {
		return strict.Object{}, false
	}
	o, err := strict.ParseObject([]byte(arg), maxMembers)
	return o, err == nil
}

func decode(o strict.Object, name string, v any) bool {
	raw, ok := o.Get(name)
	return !ok || string(raw) != "null" && json.Unmarshal(raw, v) == nil
}

// ByeCode reports whether an application may end a session with code, protocol section
// 5; 1005 means close() without a code.
func ByeCode(code int) bool {
	return code == frame.NoStatus || code == 1000 || code == 1001 || code >= 3000 && code <= 4999
}
