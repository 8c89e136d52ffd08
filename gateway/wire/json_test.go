package wire

import (
	"encoding/json"
	"math"
	"reflect"
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

// example is that of protocol section 5.
const example = `{"session": "<id>", "token": "<TOKEN>", "resumed": true, "received": 17, "lost": 0, "replay": 12,
 "grace_ms": 30000, "heartbeat_ms": 15000, "answer_ms": 5000, "protocol": "chat.v2",
 "limits": {"message_bytes": 1048576, "unacked_messages": 1024, "unacked_bytes": 1048576}}`

// A client may rely on each member but the optional ones of hello: zero values are not omitted.
func TestJSONHasTheMembersOfTheProtocol(t *testing.T) {
	limits := Limits{MessageBytes: 1048576, UnackedMessages: 1024, UnackedBytes: 1048576}
	for _, tt := range []struct {
		verb string
		v    any
		want string
	}{
		{VerbHello, Hello{Session: "<id>", Token: "<TOKEN>", Resumed: true, Received: 17, Replay: 12, Grace: 30000, Heartbeat: 15000, Answer: 5000, Protocol: "chat.v2", Limits: limits}, example},
		{VerbHello, Hello{}, `{"session":"","token":"","resumed":false,"received":0,"lost":0,"replay":0,"grace_ms":0,"heartbeat_ms":0,"answer_ms":0,"protocol":"",
			"limits":{"message_bytes":0,"unacked_messages":0,"unacked_bytes":0}}`},
		{VerbHello, Hello{PartBytes: 4096, Probe: true, Lost: 3}, `{"session":"","token":"","resumed":false,"received":0,"lost":3,"replay":0,"grace_ms":0,"heartbeat_ms":0,"answer_ms":0,"protocol":"",
			"limits":{"message_bytes":0,"unacked_messages":0,"unacked_bytes":0},"part_bytes":4096,"probe":true}`},
		{VerbHello, Hello{Partial: new(Partial)}, `{"session":"","token":"","resumed":false,"received":0,"lost":0,"replay":0,"grace_ms":0,"heartbeat_ms":0,"answer_ms":0,"protocol":"",
			"limits":{"message_bytes":0,"unacked_messages":0,"unacked_bytes":0},"partial":{"down":0,"up":0}}`},
		{VerbParts, Part{Bytes: 5000}, `{"bytes":5000,"text":false}`},
		{VerbParts, Part{Bytes: 5000, Text: true, From: 7}, `{"bytes":5000,"text":true,"from":7}`},
		{VerbEnd, Ending{Code: 1005}, `{"code":1005,"reason":""}`},
		{VerbEnd, Ending{4000, "quote \" and \u2028 and <tag>"}, `{"code":4000,"reason":"quote \" and \u2028 and <tag>"}`},
	} {
		got := argument(t, frames(t, AppendJSON(nil, tt.verb, tt.v), frame.Text)[0], tt.verb)
		var want map[string]any
		if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s %v\nwant %v", tt.verb, got, want)
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
