package wire

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"reseat/gateway/frame"
)

// frames splits b into the payloads of its frames, which must be complete, unmasked and
// of these opcodes.
func frames(t *testing.T, b []byte, opcodes ...byte) []string {
	t.Helper()
	var list []string
	for _, op := range opcodes {
		h, err := frame.Parse(b)
		if err != nil || h.Size == 0 || h.Op != op || !h.Fin || h.Masked || len(b) < h.Size+int(h.Length) {
			t.Fatalf("frame %+v, %v in % x, want opcode %x, whole and unmasked", h, err, b, op)
		}
		list = append(list, string(b[h.Size:h.Size+int(h.Length)]))
		b = b[h.Size+int(h.Length):]
	}
	if len(b) > 0 {
		t.Fatalf("% x is left behind the frames", b)
	}
	return list
}

// argument returns the JSON of a control message.
func argument(t *testing.T, payload, verb string) map[string]any {
	t.Helper()
	text, ok := strings.CutPrefix(payload, "\x10"+verb+" ")
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil || !ok {
		t.Fatalf("%q is no %s with a JSON object: %v", payload, verb, err)
	}
	return m
}

func TestControlMessageIsOneTextFrame(t *testing.T) {
	for _, tt := range []struct{ verb, arg, want string }{
		{"ping", "", "\x81\x05\x10ping"},
		{"ping", "17", "\x81\x08\x10ping 17"},
		{"grace", "30000", "\x81\x0c\x10grace 30000"},
		{"pong", "a b", "\x81\x09\x10pong a b"},
	} {
		got := string(Append([]byte("before"), tt.verb, tt.arg))
		if got != "before"+tt.want {
			t.Errorf("%s %s: %q, want %q", tt.verb, tt.arg, got, "before"+tt.want)
		}
	}
	for n := range 200 { // both forms of a frame's length
		arg := strings.Repeat("x", n+1)
		if got := frames(t, Append(nil, "ping", arg), frame.Text)[0]; got != "\x10ping "+arg {
			t.Errorf("argument of %d bytes: %q", len(arg), got)
		}
	}
}

func TestAckRoundTrips(t *testing.T) {
	for _, n := range []uint64{0, 1, 9, 10, 99, 100, 12345, 1 << 32, 1<<53 - 1, 9999999999999999} {
		payload := frames(t, AppendAck(nil, n), frame.Text)[0]
		m, err := ParseClient([]byte(payload[1:]))
		if payload[0] != DLE || m.Verb != VerbAck || m.Ack != n || err != nil {
			t.Errorf("ack of %d: %q reads %+v, %v", n, payload, m, err)
		}
	}
	if got := string(AppendAck([]byte("before"), 42)); got != "before\x81\x07\x10ack 42" {
		t.Errorf("%q", got)
	}
	if got := frames(t, AppendAck(nil, math.MaxUint64), frame.Text)[0]; got != "\x10ack 18446744073709551615" {
		t.Errorf("%q", got)
	}
}

func TestPingAndPongRoundTrip(t *testing.T) {
	for _, verb := range []string{VerbPing, VerbPong} {
		for _, arg := range []string{"", "1", "a b", strings.Repeat("\u20ac", 32)} {
			payload := frames(t, Append(nil, verb, arg), frame.Text)[0]
			if m, err := ParseClient([]byte(payload[1:])); m != (Message{Verb: verb, Arg: arg}) || err != nil {
				t.Errorf("%s %q: reads %+v, %v", verb, arg, m, err)
			}
		}
	}
}

// page is the example of protocol section 5.
const page = `{"session": "<id>", "token": "<TOKEN>", "resumed": true, "received": 17, "lost": 0, "replay": 12,
 "grace_ms": 30000, "heartbeat_ms": 15000, "answer_ms": 5000, "protocol": "chat.v2",
 "limits": {"message_bytes": 1048576, "unacked_messages": 1024, "unacked_bytes": 1048576}}`

func TestHelloMatchesTheProtocol(t *testing.T) {
	h := Hello{
		Session: "<id>", Token: "<TOKEN>", Resumed: true, Received: 17, Lost: 0, Replay: 12,
		Grace: 30000, Heartbeat: 15000, Answer: 5000, Protocol: "chat.v2",
		Limits: Limits{MessageBytes: 1048576, UnackedMessages: 1024, UnackedBytes: 1048576},
	}
	got := argument(t, frames(t, AppendJSON(nil, VerbHello, h), frame.Text)[0], VerbHello)
	var want map[string]any
	if err := json.Unmarshal([]byte(page), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("hello %v\nwant  %v", got, want)
	}
}

func TestOptionalMembersOfHello(t *testing.T) {
	got := argument(t, frames(t, AppendJSON(nil, VerbHello, Hello{PartBytes: 4096, Probe: true}), frame.Text)[0], VerbHello)
	if got["part_bytes"] != 4096.0 || got["probe"] != true {
		t.Errorf("hello %v", got)
	}
}

// A client may rely on each member: zero values are not omitted.
func TestHelloHasAllItsMembersWhenEmpty(t *testing.T) {
	got := argument(t, frames(t, AppendJSON(nil, VerbHello, Hello{}), frame.Text)[0], VerbHello)
	want := map[string]any{
		"session": "", "token": "", "resumed": false, "received": 0.0, "lost": 0.0, "replay": 0.0, "grace_ms": 0.0, "heartbeat_ms": 0.0, "answer_ms": 0.0, "protocol": "",
		"limits": map[string]any{"message_bytes": 0.0, "unacked_messages": 0.0, "unacked_bytes": 0.0},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("hello %v\nwant  %v", got, want)
	}
}

func TestEndHasCodeAndReason(t *testing.T) {
	for _, e := range []Ending{{1005, ""}, {1000, "over"}, {4000, "quote \" and \u2028 and <tag>"}} {
		got := argument(t, frames(t, AppendJSON(nil, VerbEnd, e), frame.Text)[0], VerbEnd)
		if want := map[string]any{"code": float64(e.Code), "reason": e.Reason}; !reflect.DeepEqual(got, want) {
			t.Errorf("end %v, want %v", got, want)
		}
	}
}

func TestCloseMessageIsFollowedByItsCloseFrame(t *testing.T) {
	for _, c := range []Closing{
		{Code: 4409, Reason: "superseded"},
		{Code: 4429, Reason: "too_fast", Retry: true, RetryAfter: 2500},
		{Code: 4410, Reason: ""},
		{Code: 4410, Reason: strings.Repeat("x", 123)},
	} {
		payloads := frames(t, AppendClosing([]byte{}, c), frame.Text, frame.Close)
		got := argument(t, payloads[0], VerbClose)
		want := map[string]any{"code": float64(c.Code), "reason": c.Reason, "retry": c.Retry, "retry_after_ms": float64(c.RetryAfter)}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("close %v, want %v", got, want)
		}
		if code, reason, err := frame.ParseClose([]byte(payloads[1])); code != c.Code || reason != c.Reason || err != nil {
			t.Errorf("Close %d %q, %v, want %d %q", code, reason, err, c.Code, c.Reason)
		}
	}
}

func TestLongReasonIsTruncatedAlikeInCloseMessageAndFrame(t *testing.T) {
	for _, long := range []string{strings.Repeat("x", 124), strings.Repeat("\u20ac", 80), strings.Repeat("\U0001F44B", 5000)} {
		payloads := frames(t, AppendClosing(nil, Closing{Code: 4410, Reason: long}), frame.Text, frame.Close)
		said := argument(t, payloads[0], VerbClose)["reason"].(string)
		_, sent, err := frame.ParseClose([]byte(payloads[1]))
		if said != sent || err != nil || len(sent) > 123 || len(sent) < 120 || !strings.HasPrefix(long, sent) || !utf8.ValidString(sent) {
			t.Errorf("close says %q, the Close frame %q, %v", said, sent, err)
		}
	}
}

func TestAckIsWrittenWithoutAllocation(t *testing.T) {
	dst := make([]byte, 0, 64)
	for name, run := range map[string]func(){
		"ack":  func() { AppendAck(dst, 1<<53) },
		"ping": func() { Append(dst, VerbPing, "17") },
	} {
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// A verb is sent either by the client or by the gateway, unless it is for both.
func TestEveryVerbHasItsDirection(t *testing.T) {
	sides := map[string]bool{ // whether a client may send it
		VerbHello: false, VerbAck: true, VerbToken: false, VerbGrace: false, VerbPing: true, VerbPong: true,
		VerbBye: true, VerbMove: false, VerbEnd: false, VerbClose: false, VerbUpstream: false,
	}
	want := []string{"ack", "bye", "close", "end", "grace", "hello", "move", "ping", "pong", "token", "upstream"}
	if got := slices.Sorted(maps.Keys(sides)); !slices.Equal(got, want) {
		t.Errorf("verbs %v, want %v", got, want)
	}
	for verb, allowed := range sides {
		if _, err := ParseClient([]byte(verb)); (err == ErrDirection) == allowed {
			t.Errorf("%s from a client: %v", verb, err)
		}
	}
}
