package wire

import (
	"net/http"
	"reflect"
	"testing"
)

// offer is the header of a handshake with these Sec-WebSocket-Protocol lines.
func offer(lines ...string) http.Header {
	h := http.Header{}
	for _, l := range lines {
		h.Add("Sec-WebSocket-Protocol", l)
	}
	return h
}

func TestOfferIsReadFromAnyPosition(t *testing.T) {
	app := []string{"chat.v2", "chat.v1"}
	resumed := Offer{Protocols: app, Resumable: true, Resume: true, Token: "a.b.c", Received: 17, ReceivedOK: true}
	for _, tt := range []struct {
		lines []string
		want  Offer
	}{
		{nil, Offer{}},
		{[]string{""}, Offer{}},
		{[]string{"chat.v2, chat.v1"}, Offer{Protocols: app}},
		{[]string{"chat.v1", "chat.v2"}, Offer{Protocols: []string{"chat.v1", "chat.v2"}}},
		{[]string{"reseat.v1"}, Offer{Resumable: true}},
		{[]string{"chat.v2,chat.v1,reseat.v1"}, Offer{Protocols: app, Resumable: true}},
		{[]string{"reseat.v1, chat.v2, chat.v1"}, Offer{Protocols: app, Resumable: true}},
		{[]string{"chat.v2 , reseat.v1\t,\t chat.v1 "}, Offer{Protocols: app, Resumable: true}},
		{[]string{",, chat.v2,, ,reseat.v1,chat.v1,"}, Offer{Protocols: app, Resumable: true}},
		{[]string{"chat.v2", "reseat.v1", "chat.v1"}, Offer{Protocols: app, Resumable: true}},
		{[]string{"reseat.v1, reseat.v1"}, Offer{Resumable: true}},
		{[]string{"chat.v2, chat.v1, reseat.v1, reseat.token.a.b.c, reseat.received.17"}, resumed},
		{[]string{"reseat.received.17, chat.v2, reseat.token.a.b.c, chat.v1, reseat.v1"}, resumed},
		{[]string{"reseat.token.a.b.c", "reseat.received.17", "chat.v2,chat.v1", "reseat.v1"}, resumed},
		{[]string{"chat.v2, chat.v1, reseat.v1, reseat.token.a.b.c, reseat.token.a.b.c, reseat.received.17, reseat.received.17"}, resumed},
	} {
		if got := ParseOffer(offer(tt.lines...)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: %+v, want %+v", tt.lines, got, tt.want)
		}
	}
}

func TestSettledIsReadFromBothPlaces(t *testing.T) {
	for _, tt := range []struct {
		lines, header []string
		want          Settled
		ok            bool
	}{
		{lines: []string{"reseat.v1, reseat.settled.0.0"}, ok: true},
		{lines: []string{"reseat.v1, reseat.settled.17.20"}, want: Settled{17, 20}, ok: true},
		{lines: []string{"reseat.v1"}, header: []string{"17 20"}, want: Settled{17, 20}, ok: true},
		{lines: []string{"reseat.v1, reseat.settled.17.20"}, header: []string{"17 20"}, want: Settled{17, 20}, ok: true},
		{lines: []string{"reseat.v1, reseat.settled.17.20, reseat.settled.17.21"}},
		{lines: []string{"reseat.v1"}, header: []string{"17 20", "17 21"}},
		{lines: []string{"reseat.v1, reseat.settled.20.17"}}, // acked more than it has sent
		{lines: []string{"reseat.v1, reseat.settled.17"}},
		{lines: []string{"reseat.v1, reseat.settled."}},
		{lines: []string{"reseat.v1, reseat.settled.1.2.3"}},
		{lines: []string{"reseat.v1, reseat.settled.-1.2"}},
		{lines: []string{"reseat.v1, reseat.settled.1.12345678901234567"}},
		{lines: []string{"reseat.settled.1.2"}}, // a plain client
	} {
		h := offer(tt.lines...)
		for _, v := range tt.header {
			h.Add("Reseat-Settled", v)
		}
		o := ParseOffer(h)
		if o.Settled != tt.want || o.SettledOK != tt.ok || o.Resume {
			t.Errorf("%q, %q: %+v, %v, resume %v, want %+v, %v and no resume", tt.lines, tt.header, o.Settled, o.SettledOK, o.Resume, tt.want, tt.ok)
		}
	}
}

// Our entries never reach the upstream, known or not.
func TestOwnEntriesNeverReachTheApplicationsList(t *testing.T) {
	for _, own := range []string{"reseat.", "reseat.v1", "reseat.v2", "reseat.v10", "reseat.token.x", "reseat.token.", "reseat.received.5", "reseat.received.x", "reseat.received", "reseat.route.n1", "reseat.settled.1.2", "reseat.what"} {
		for _, line := range []string{own, own + ", chat", "chat, " + own} {
			for _, p := range ParseOffer(offer(line)).Protocols {
				if p != "chat" {
					t.Errorf("%q: the upstream would be offered %q", line, p)
				}
			}
		}
	}
}

// protocol section 2: only a first handshake that offers reseat.refusals gets its
// refusal in a close message.
func TestRefusalsAreOnlyForFirstHandshakes(t *testing.T) {
	for lines, want := range map[string]bool{
		"reseat.v1, reseat.refusals": true, "reseat.refusals, chat, reseat.v1": true, "reseat.v1": false, "reseat.refusals": false,
		"reseat.v1, reseat.refusals2": false, "reseat.v1, Reseat.refusals": false,
		"reseat.v1, reseat.refusals, reseat.token.a, reseat.received.0": false, "reseat.v1, reseat.refusals, reseat.received.0": false,
	} {
		if got := ParseOffer(offer(lines)); got.Refusals != want {
			t.Errorf("%s: %+v", lines, got)
		}
	}
}

// protocol section 2: two different tokens mean 4401, so neither may be used.
func TestDifferentTokensAreIgnored(t *testing.T) {
	for _, tt := range []struct {
		lines  string
		header []string
		want   string
	}{
		{"reseat.v1, reseat.token.a", nil, "a"},
		{"reseat.v1, reseat.token.a, reseat.token.a", nil, "a"},
		{"reseat.v1, reseat.token.a, reseat.token.b", nil, ""},
		{"reseat.v1, reseat.token.a, reseat.token.a, reseat.token.b", nil, ""},
		{"reseat.v1, reseat.token.a, reseat.token.", nil, ""},
		{"reseat.v1, reseat.token.a", []string{"a"}, "a"},
		{"reseat.v1, reseat.token.a", []string{"b"}, ""},
		{"reseat.v1, reseat.token.a", []string{""}, ""},
		{"reseat.v1", []string{"a"}, "a"},
		{"reseat.v1", []string{"a", "a"}, "a"},
		{"reseat.v1", []string{"a", "b"}, ""},
		{"reseat.v1", []string{""}, ""},
		{"reseat.v1, reseat.token.", nil, ""},
	} {
		h := offer(tt.lines + ", reseat.received.1")
		h["Reseat-Token"] = tt.header
		got := ParseOffer(h)
		if got.Token != tt.want || !got.Resume || !got.ReceivedOK {
			t.Errorf("%s and Reseat-Token %q: %+v, want the token %q", tt.lines, tt.header, got, tt.want)
		}
	}
}

// protocol section 2: a missing, malformed or ambiguous number means 4400.
func TestReceivedMustBeOneNumber(t *testing.T) {
	for _, tt := range []struct {
		lines  string
		header []string
		want   uint64
		ok     bool
	}{
		{"", nil, 0, false},
		{"reseat.received.0", nil, 0, true},
		{"reseat.received.17", nil, 17, true},
		{"reseat.received.0017", nil, 17, true},
		{"reseat.received.9999999999999999", nil, 9999999999999999, true},
		{"reseat.received.00000000000000001", nil, 0, false},
		{"reseat.received.10000000000000000", nil, 0, false},
		{"reseat.received.", nil, 0, false},
		{"reseat.received.+5", nil, 0, false},
		{"reseat.received.-5", nil, 0, false},
		{"reseat.received. 5", nil, 0, false},
		{"reseat.received.5 6", nil, 0, false},
		{"reseat.received.5.0", nil, 0, false},
		{"reseat.received.0x5", nil, 0, false},
		{"reseat.received.five", nil, 0, false},
		{"reseat.received.5, reseat.received.5", nil, 5, true},
		{"reseat.received.5, reseat.received.05", nil, 5, true},
		{"reseat.received.5, reseat.received.6", nil, 0, false},
		{"reseat.received.0, reseat.received.6", nil, 0, false},
		{"reseat.received.5, reseat.received.x", nil, 0, false},
		{"reseat.received.x, reseat.received.5", nil, 0, false},
		{"", []string{"5"}, 5, true},
		{"", []string{"5", "5"}, 5, true},
		{"", []string{"5", "6"}, 0, false},
		{"", []string{"5 "}, 0, false},
		{"", []string{"5,5"}, 0, false},
		{"", []string{""}, 0, false},
		{"reseat.received.5", []string{"5"}, 5, true},
		{"reseat.received.5", []string{"6"}, 0, false},
		{"reseat.received.5", []string{""}, 0, false},
	} {
		h := offer("reseat.v1, reseat.token.a", tt.lines)
		h["Reseat-Received"] = tt.header
		got := ParseOffer(h)
		if got.Received != tt.want || got.ReceivedOK != tt.ok || !got.Resume || got.Token != "a" {
			t.Errorf("%q and Reseat-Received %q: %+v, want %d, %t", tt.lines, tt.header, got, tt.want, tt.ok)
		}
	}
}

// A client that sends either entry wants to resume. A new session would silently lose
// its old one.
func TestEitherEntryMakesItAResume(t *testing.T) {
	for _, h := range []http.Header{
		offer("reseat.v1, reseat.token.a"),
		offer("reseat.v1, reseat.received.5"),
		offer("reseat.v1, reseat.token."),
		offer("reseat.v1, reseat.received."),
		{"Sec-Websocket-Protocol": {"reseat.v1"}, "Reseat-Token": {"a"}},
		{"Sec-Websocket-Protocol": {"reseat.v1"}, "Reseat-Received": {"5"}},
	} {
		if got := ParseOffer(h); !got.Resume || !got.Resumable {
			t.Errorf("%v: %+v", h, got)
		}
	}
}

func TestPartsAreForClientsThatCanResume(t *testing.T) {
	for lines, want := range map[string]bool{
		"reseat.v1, reseat.parts": true, "reseat.parts, chat.v1, reseat.v1": true, "reseat.v1, reseat.token.x, reseat.received.1, reseat.parts": true,
		"reseat.v1": false, "reseat.parts": false, "reseat.v1, reseat.parts2": false,
	} {
		if got := ParseOffer(offer(lines)); got.Parts != want {
			t.Errorf("%q: parts %v, want %v", lines, got.Parts, want)
		}
	}
}
