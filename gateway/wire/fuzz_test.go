package wire

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"reseat/gateway/frame"
)

// FuzzParseClient: no panic, only the documented errors; an accepted message conforms
// to protocol section 5, and reads the same when written again.
func FuzzParseClient(f *testing.F) {
	f.Add([]byte("ack 17"))
	f.Add([]byte(`bye {"code":4000,"reason":"done"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseClient(b)
		if err != nil {
			if m != (Message{}) || !slices.Contains([]error{ErrUTF8, ErrVerb, ErrArgument, ErrDirection}, err) {
				t.Fatalf("%q: %+v, %v", b, m, err)
			}
			return
		}
		if !utf8.Valid(b) {
			t.Fatalf("%q, which is no text, reads %+v", b, m)
		}
		switch m.Verb {
		case "":
			if m != (Message{}) {
				t.Fatalf("%q is unknown, and says %+v", b, m)
			}
		case VerbAck:
			checkRoundTrip(t, b, m, AppendAck(nil, m.Ack))
		case VerbPing, VerbPong:
			if utf8.RuneCountInString(m.Arg) > 32 || strings.ContainsFunc(m.Arg, unicode.IsControl) {
				t.Fatalf("%q reads %+v", b, m)
			}
			checkRoundTrip(t, b, m, Append(nil, m.Verb, m.Arg))
		case VerbLeaving:
		case VerbBye:
			if !ByeCode(m.Bye.Code) || len(m.Bye.Reason) > 123 || !utf8.ValidString(m.Bye.Reason) {
				t.Fatalf("%q reads %+v", b, m)
			}
			checkRoundTrip(t, b, m, AppendJSON(nil, VerbBye, Ending(m.Bye)))
		default:
			t.Fatalf("%q reads %+v", b, m)
		}
	})
}

// checkRoundTrip reads a frame made from m.
func checkRoundTrip(t *testing.T, b []byte, m Message, f []byte) {
	t.Helper()
	h, err := frame.Parse(f)
	if err != nil || f[h.Size] != DLE {
		t.Fatalf("%q is written % x: %v", b, f, err)
	}
	again, err := ParseClient(f[h.Size+1:])
	if m.Verb != VerbPing && m.Verb != VerbPong {
		again.Arg, m.Arg = "", "" // spelled differently
	}
	if again != m || err != nil {
		t.Fatalf("%q reads %+v, and once written anew %+v, %v", b, m, again, err)
	}
}

// FuzzParseOffer: no panic; the application's list contains no entry of ours, and
// nothing that was not offered.
func FuzzParseOffer(f *testing.F) {
	f.Add("chat.v2, reseat.v1", "reseat.token.a, reseat.received.17", "", "")
	f.Add("reseat.v1", "", "a", "17")
	f.Fuzz(func(t *testing.T, line1, line2, token, received string) {
		h := http.Header{"Sec-Websocket-Protocol": {line1, line2}}
		if token != "" {
			h["Reseat-Token"] = []string{token}
		}
		if received != "" {
			h["Reseat-Received"] = []string{received}
		}
		o := ParseOffer(h)
		offered := strings.Split(line1+","+line2, ",")
		for i := range offered {
			offered[i] = strings.Trim(offered[i], " \t")
		}
		theirs := slices.DeleteFunc(slices.Clone(offered), func(p string) bool { return p == "" || strings.HasPrefix(p, "reseat.") })
		if !slices.Equal(o.Protocols, theirs) || o.Resumable != slices.Contains(offered, "reseat.v1") {
			t.Fatalf("%q: %+v, want the application's %q", offered, o, theirs)
		}
		switch {
		case o.Resume && !o.Resumable, o.ReceivedOK && !o.Resume, o.Token != "" && !o.Resume, !o.ReceivedOK && o.Received != 0, o.Received > 9999999999999999,
			o.Token != "" && o.Token != token && !slices.Contains(offered, "reseat.token."+o.Token):
			t.Fatalf("%v: %+v", h, o)
		}
		joined := http.Header{"Sec-Websocket-Protocol": {line1 + "," + line2}, "Reseat-Token": h["Reseat-Token"], "Reseat-Received": h["Reseat-Received"]}
		if one := ParseOffer(joined); !reflect.DeepEqual(one, o) {
			t.Fatalf("in one line %+v, in two %+v", one, o)
		}
	})
}
