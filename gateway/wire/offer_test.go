package wire

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// handshake is the header that a row of offers describes: lines of Sec-WebSocket-Protocol, and of other headers with
// their names, between bars.
func handshake(row string) http.Header {
	h := http.Header{}
	for line := range strings.SplitSeq(row, "|") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			h.Add(name, value)
		} else {
			h.Add("Sec-WebSocket-Protocol", line)
		}
	}
	return h
}

// describe says what is in o.
func describe(o Offer) string {
	said := strings.Join(o.Protocols, " ")
	say := func(is bool, format string, args ...any) {
		if is {
			said += fmt.Sprintf(" "+format, args...)
		}
	}
	say(o.Resumable, "resumable")
	say(o.Resume, "resume")
	say(o.Token != "", "token=%s", o.Token)
	say(o.ReceivedOK, "received=%d", o.Received)
	say(o.SettledOK, "settled=%d,%d", o.Settled.Acked, o.Settled.Sent)
	say(o.Refusals, "refusals")
	say(o.Parts, "parts")
	say(o.Partial, "held=%d", o.Held)
	say(o.Skips, "skips")
	return strings.TrimSpace(said)
}

func TestOfferIsReadFromHandshake(t *testing.T) {
	const resumed = "chat.v2 chat.v1 resumable resume token=a.b.c received=17"
	for rule, rows := range map[string][][2]string{
		"entries have any position": {
			{"", ""},
			{"chat.v2, chat.v1", "chat.v2 chat.v1"},
			{"chat.v1|chat.v2", "chat.v1 chat.v2"},
			{"reseat.v1", "resumable"},
			{"reseat.v1, chat.v2, chat.v1", "chat.v2 chat.v1 resumable"},
			{"chat.v2 , reseat.v1\t,\t chat.v1 ", "chat.v2 chat.v1 resumable"},
			{",, chat.v2,, ,reseat.v1,chat.v1,", "chat.v2 chat.v1 resumable"},
			{"chat.v2|reseat.v1|chat.v1", "chat.v2 chat.v1 resumable"},
			{"reseat.v1, reseat.v1", "resumable"},
			{"chat.v2, chat.v1, reseat.v1, reseat.token.a.b.c, reseat.received.17", resumed},
			{"reseat.received.17, chat.v2, reseat.token.a.b.c, chat.v1, reseat.v1", resumed},
			{"reseat.token.a.b.c|reseat.received.17|chat.v2,chat.v1|reseat.v1", resumed},
			{"chat.v2, chat.v1, reseat.v1, reseat.token.a.b.c, reseat.token.a.b.c, reseat.received.17, reseat.received.17", resumed},
		},
		"our entries never reach the upstream, known or not": {
			{"reseat.|chat, reseat.v2, reseat.v10|reseat.token.x, reseat.token.|reseat.received.5, reseat.received.x, reseat.received|reseat.route.n1, reseat.settled.1.2, reseat.what, Reseat.x", "chat Reseat.x"},
		},
		"protocol section 2: only a first handshake gets its refusal in a close message": {
			{"reseat.v1, reseat.refusals", "resumable refusals"},
			{"reseat.refusals, chat, reseat.v1", "chat resumable refusals"},
			{"reseat.refusals", ""},
			{"reseat.v1, reseat.refusals2, Reseat.refusals", "Reseat.refusals resumable"},
			{"reseat.v1, reseat.refusals, reseat.token.a, reseat.received.0", "resumable resume token=a received=0"},
			{"reseat.v1, reseat.refusals, reseat.received.0", "resumable resume received=0"},
		},
		"protocol section 2: of two different tokens neither may be used": {
			{"reseat.v1, reseat.token.a", "resumable resume token=a"},
			{"reseat.v1, reseat.token.a, reseat.token.a", "resumable resume token=a"},
			{"reseat.v1, reseat.token.a, reseat.token.b", "resumable resume"},
			{"reseat.v1, reseat.token.a, reseat.token.a, reseat.token.b", "resumable resume"},
			{"reseat.v1, reseat.token.a, reseat.token.", "resumable resume"},
			{"reseat.v1, reseat.token.", "resumable resume"},
			{"reseat.v1, reseat.token.a|Reseat-Token: a", "resumable resume token=a"},
			{"reseat.v1, reseat.token.a|Reseat-Token: b", "resumable resume"},
			{"reseat.v1, reseat.token.a|Reseat-Token: ", "resumable resume"},
			{"reseat.v1|Reseat-Token: a", "resumable resume token=a"},
			{"reseat.v1|Reseat-Token: a|Reseat-Token: a", "resumable resume token=a"},
			{"reseat.v1|Reseat-Token: a|Reseat-Token: b", "resumable resume"},
			{"reseat.v1|Reseat-Token: ", "resumable resume"},
		},
		"acked and sent are read from both places, and make it no resume": {
			{"reseat.v1, reseat.settled.0.0", "resumable settled=0,0"},
			{"reseat.v1, reseat.settled.17.20", "resumable settled=17,20"},
			{"reseat.v1|Reseat-Settled: 17 20", "resumable settled=17,20"},
			{"reseat.v1, reseat.settled.17.20|Reseat-Settled: 17 20", "resumable settled=17,20"},
			{"reseat.v1, reseat.settled.17.20, reseat.settled.17.21", "resumable"},
			{"reseat.v1|Reseat-Settled: 17 20|Reseat-Settled: 17 21", "resumable"},
			{"reseat.v1, reseat.settled.20.17", "resumable"},
			{"reseat.v1, reseat.settled.17", "resumable"},
			{"reseat.v1, reseat.settled.", "resumable"},
			{"reseat.v1, reseat.settled.1.2.3", "resumable"},
			{"reseat.v1, reseat.settled.-1.2", "resumable"},
			{"reseat.v1, reseat.settled.1.12345678901234567", "resumable"},
			{"reseat.settled.1.2", ""},
		},
		"what is held of a message and cannot be read is nothing": {
			{"reseat.v1, reseat.parts, reseat.skip", "resumable parts skips"},
			{"reseat.parts, chat.v1, reseat.v1", "chat.v1 resumable parts"},
			{"reseat.parts, reseat.skip, reseat.partial.5", ""},
			{"reseat.v1, reseat.parts2, reseat.skip2, reseat.partial", "resumable"},
			{"reseat.v1, reseat.partial.0", "resumable parts held=0"},
			{"reseat.v1, reseat.parts, reseat.partial.4096", "resumable parts held=4096"},
			{"reseat.v1, reseat.partial.5, reseat.partial.5", "resumable parts held=5"},
			{"reseat.v1, reseat.partial.5, reseat.partial.6", "resumable parts held=0"},
			{"reseat.v1, reseat.partial.", "resumable parts held=0"},
			{"reseat.v1, reseat.partial.-1", "resumable parts held=0"},
			{"reseat.v1, reseat.partial.12345678901234567", "resumable parts held=0"},
			{"reseat.v1, reseat.token.x, reseat.received.1, reseat.partial.999999", "resumable resume token=x received=1 parts held=999999"},
		},
	} {
		for _, row := range rows {
			if got := describe(ParseOffer(handshake(row[0]))); got != row[1] {
				t.Errorf("%s: %q: %q, want %q", rule, row[0], got, row[1])
			}
		}
	}
}

// protocol section 2: a missing, malformed or ambiguous number means 4400, of a client that wants to resume all the
// same: a new session would silently lose its old one.
func TestReceivedMustBeOneNumber(t *testing.T) {
	for _, row := range []string{"0", "17", "0017=17", "9999999999999999", "5|reseat.received.5=5", "5|reseat.received.05=5", "5|Reseat-Received: 5=5"} {
		text, want, _ := strings.Cut(row, "=")
		if want == "" {
			want = text
		}
		wantReceived(t, "reseat.received."+text, want)
	}
	wantReceived(t, "Reseat-Received: 5", "5")
	wantReceived(t, "Reseat-Received: 5|Reseat-Received: 5", "5")
	for _, text := range []string{
		"reseat.received.00000000000000001", "reseat.received.10000000000000000", "reseat.received.", "reseat.received.+5", "reseat.received.-5", "reseat.received. 5",
		"reseat.received.5 6", "reseat.received.5.0", "reseat.received.0x5", "reseat.received.five", "reseat.received.5, reseat.received.6", "reseat.received.0, reseat.received.6",
		"reseat.received.5, reseat.received.x", "reseat.received.x, reseat.received.5", "Reseat-Received: 5|Reseat-Received: 6", "Reseat-Received: 5 ", "Reseat-Received: 5,5",
		"Reseat-Received: ", "reseat.received.5|Reseat-Received: 6", "reseat.received.5|Reseat-Received: ",
	} {
		wantReceived(t, text, "")
	}
}

func wantReceived(t *testing.T, row, number string) {
	t.Helper()
	want := "resumable resume"
	if number != "" {
		want += " received=" + number
	}
	if got := describe(ParseOffer(handshake("reseat.v1|" + row))); got != want {
		t.Errorf("%q: %q, want %q", row, got, want)
	}
}
