package deflate_test

import (
	"net/http"
	"testing"

	"reseat/gateway/deflate"
)

const (
	yes = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
	no  = ""
)

func negotiated(values ...string) string {
	p, ok := deflate.Negotiate(http.Header{"Sec-Websocket-Extensions": values}, 0)
	if !ok {
		return no
	}
	return p.String()
}

func TestOffersAreAnsweredByTheRFC(t *testing.T) {
	for offer, want := range map[string]string{
		"":                   no,
		"permessage-deflate": yes,
		"permessage-deflate; client_max_window_bits":                                 yes, // Chrome
		" permessage-deflate\t;\tclient_max_window_bits ,":                           yes,
		"permessage-deflate;client_max_window_bits=8":                                yes,
		"permessage-deflate; client_max_window_bits = 15":                            yes,
		`permessage-deflate; client_max_window_bits="10"`:                            yes,
		"permessage-deflate; server_no_context_takeover; client_no_context_takeover": yes,
		"permessage-deflate; server_max_window_bits=15":                              yes + "; server_max_window_bits=15",
		"permessage-deflate; server_max_window_bits=8":                               yes + "; server_max_window_bits=8",
		`permessage-deflate; server_max_window_bits="9"; client_max_window_bits`:     yes + "; server_max_window_bits=9",

		"permessage-deflate; server_max_window_bits=7":                               no,
		"permessage-deflate; server_max_window_bits=16":                              no,
		"permessage-deflate; server_max_window_bits=010":                             no,
		"permessage-deflate; server_max_window_bits=+10":                             no,
		"permessage-deflate; server_max_window_bits=ten":                             no,
		"permessage-deflate; server_max_window_bits":                                 no,
		"permessage-deflate; client_max_window_bits=16":                              no,
		"permessage-deflate; client_max_window_bits=08":                              no,
		"permessage-deflate; server_no_context_takeover=true":                        no,
		"permessage-deflate; client_no_context_takeover=1":                           no,
		"permessage-deflate; client_max_window_bits; client_max_window_bits=10":      no,
		"permessage-deflate; server_no_context_takeover; server_no_context_takeover": no,
		"permessage-deflate; mux":                                                    no,
		"permessage-deflate; mux=4":                                                  no,
		"Permessage-Deflate":                                                         no,
		"x-webkit-deflate-frame":                                                     no,
		"permessage-bzip2":                                                           no,
		"permessage-deflate-2":                                                       no,
		"permessage-deflate mux":                                                     no, // from here on, invalid headers
		"permessage-deflate;":                                                        no,
		"permessage-deflate; =10":                                                    no,
		"permessage-deflate; mux=":                                                   no,
		`permessage-deflate; mux="`:                                                  no,
		`permessage-deflate; mux="\`:                                                 no,
		`permessage-deflate; client_max_window_bits="\1\0"`:                          no, // never sent
		`permessage-deflate; mux=""`:                                                 no,
		`mux; a="", permessage-deflate`:                                              no,
		`permessage-deflate; mux="a b"`:                                              no,
		`permessage-deflate, foo; bar="`:                                             no,
		"permessage-deflate, foo bar":                                                no,
		"permessage-deflate, \x00":                                                   no,
		"; permessage-deflate":                                                       no,
		"permessage-deflate\r\n; mux":                                                no,
		"permessage-deflate; mux=\xff":                                               no,
		"permessage-deflate; server_max_window_bits=99999999999999999999":            no,
	} {
		if got := negotiated(offer); got != want {
			t.Errorf("%q: answered %q, want %q", offer, got, want)
		}
	}
}

func TestFirstAcceptableOfferIsAccepted(t *testing.T) {
	small := yes + "; server_max_window_bits=10"
	for _, c := range []struct {
		want   string
		values []string
	}{
		// The two of RFC 7692 section 7.1.3.
		{small, []string{"permessage-deflate; client_max_window_bits; server_max_window_bits=10, permessage-deflate; client_max_window_bits"}},
		{small, []string{"permessage-deflate; server_max_window_bits=10", "permessage-deflate"}},
		{yes, []string{"permessage-deflate; mux, permessage-deflate"}},
		{yes, []string{"permessage-deflate; server_max_window_bits=3", "foo; bar=\"baz\"", "", ", ,permessage-deflate"}},
		{yes, []string{"foo, bar; baz, permessage-deflate, permessage-deflate; server_max_window_bits=10"}},
		{no, []string{"permessage-deflate", "a header that is none"}},
		{no, []string{`foo; bar="permessage-deflate"`, `foo; bar=permessage-deflate`}},
	} {
		if got := negotiated(c.values...); got != c.want {
			t.Errorf("%q: answered %q, want %q", c.values, got, c.want)
		}
	}
}
