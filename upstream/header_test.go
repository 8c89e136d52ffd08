package upstream

import (
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// ownHeader is the header that the gateway sets for a session.
var ownHeader = http.Header{"Reseat-Session": {"s1"}, "Reseat-Player": {"ann"}}

// wantOwn is the upstream's view of a client that sent nothing.
var wantOwn = http.Header{
	"Reseat-Session": {"s1"}, "Reseat-Player": {"ann"},
	"X-Forwarded-For": {"192.0.2.7"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"game.example:8443"},
}

// T14: none of these, sent by a client, changes what the upstream sees.
var forged = []http.Header{
	{"Reseat-Session": {"evil"}}, {"reseat-session": {"evil"}}, {"RESEAT-SESSION": {"evil"}}, {"Reseat_Session": {"evil"}}, {"RESEAT_SESSION": {"evil"}},
	{"reseat_Session": {"evil"}}, {"Reseat.Session": {"evil"}}, {"Reseat~Session": {"evil"}}, {"Reseat-Session": {"s1", "evil"}},
	{"Reseat-Player": {"root"}}, {"Reseat_player": {"root"}}, {"Reseat-Resumed": {"hard"}}, {"Reseat-Token": {"t"}}, {"Reseat-Received": {"3"}},
	{"Reseat-Anything-Else": {"x"}}, {"Reseat-": {"x"}}, {"Reseat_": {"x"}}, {"X-Forwarded-For": {"6.6.6.6"}}, {"X-Forwarded-For": {"6.6.6.6", "6.6.6.7"}},
	{"x-forwarded-for": {"6.6.6.6"}}, {"X_Forwarded_For": {"6.6.6.6"}}, {"X_FORWARDED_FOR": {"6.6.6.6"}}, {"X-Forwarded_For": {"6.6.6.6"}},
	{"X_forwarded-For": {"6.6.6.6"}}, {"X.Forwarded.For": {"6.6.6.6"}}, {"X-Forwarded-Proto": {"https"}}, {"X_Forwarded_Proto": {"https"}},
	{"X-Forwarded-Host": {"evil.example"}}, {"X_forwarded_Host": {"evil.example"}}, {"X-Forwarded-Port": {"1"}}, {"X-Forwarded-Server": {"evil"}},
	{"X-Forwarded-Prefix": {"/admin"}}, {"X-Forwarded-User": {"root"}}, {"Forwarded": {"for=6.6.6.6;host=evil"}}, {"FORWARDED": {"for=6.6.6.6"}},
	{"X-Real-IP": {"6.6.6.6"}}, {"X-Real-Ip": {"6.6.6.6"}}, {"X_Real_IP": {"6.6.6.6"}}, {"X_real-Ip": {"6.6.6.6"}}, {"Connection": {"Reseat-Session"}},
	{"Connection": {"upgrade, reseat-session, RESEAT-PLAYER"}}, {"Connection": {"close", "x-forwarded-for"}},
	{"Connection": {"X-Forwarded-Proto,X-Forwarded-Host"}}, {"Connection": {"Reseat_Session, X_Forwarded_For"}},
	{"Connection": {"Reseat-Session"}, "Reseat-Session": {"evil"}, "Reseat_Session": {"evil"}}, {"Connection": {" , ,Host"}},
}

func TestClientCannotForgeOrRemoveGatewayHeaders(t *testing.T) {
	for _, client := range forged {
		if got := RequestHeader(client, localPeer, nil, ownHeader); !reflect.DeepEqual(got, wantOwn) {
			t.Errorf("client sent %v: the upstream sees %v, want %v", client, got, wantOwn)
		}
	}
}

// Names that are looked up are treated like all other spellings, which are not.
func TestUsualNamesAreTreatedAsAnyOther(t *testing.T) {
	for name := range usualNames {
		for _, other := range []string{strings.ToLower(name), strings.ToUpper(name)} {
			n, o := *nameOf(name), *nameOf(other)
			if usualNames[other] != nil || n != o {
				t.Errorf("%+v as %s, %+v as %s", n, name, o, other)
			}
		}
	}
}

// Slices of one array: a field must not grow into the next.
func TestHeadersOfARequestDoNotOverlap(t *testing.T) {
	client := http.Header{"Accept-Language": {"en"}, "accept-language": {"fr", "de"}, "Cookie": {"a=1", "b=2"}, "X-Game": {"7"}, "x-game": {"8"}}
	got := RequestHeader(client, localPeer, nil, nil)
	for _, values := range got {
		slices.Sort(values)
		_ = append(values, "over")
	}
	for name, want := range map[string][]string{"Accept-Language": {"de", "en", "fr"}, "Cookie": {"a=1", "b=2"}, "X-Game": {"7", "8"}} {
		if !slices.Equal(got[name], want) {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	if want := []string{"a=1", "b=2"}; !slices.Equal(client["Cookie"], want) {
		t.Errorf("the client's header became %q", client["Cookie"])
	}
}

func TestHopByHopHeadersDoNotPassUpward(t *testing.T) {
	client := http.Header{
		"Connection": {"Upgrade, X-Hop", "close, x-OTHER-hop"}, "X-Hop": {"1"}, "X-Other-Hop": {"2"},
		"Keep-Alive": {"timeout=5"}, "Te": {"trailers"}, "TE": {"trailers"}, "Trailer": {"X"}, "Transfer-Encoding": {"chunked"},
		"Upgrade": {"websocket"}, "Proxy-Connection": {"keep-alive"}, "Proxy-Authorization": {"Basic x"}, "Proxy-Authenticate": {"Basic"},
		"Http2-Settings": {"AAMA"}, "HTTP2-Settings": {"AAMA"}, "Content-Length": {"0"}, "Host": {"evil"},
		"Sec-Websocket-Key": {"k"}, "Sec-WebSocket-Version": {"13"}, "Sec-Websocket-Extensions": {"permessage-deflate"},
		"Sec-Websocket-Protocol": {"reseat.v1, reseat.token.t"}, "Sec_WebSocket_Protocol": {"reseat.token.t"}, "Sec-Websocket-Accept": {"a"},
	}
	if got := RequestHeader(client, localPeer, nil, ownHeader); !reflect.DeepEqual(got, wantOwn) {
		t.Errorf("the upstream sees %v, want %v", got, wantOwn)
	}
}

func TestForwardedHeadersOfTrustedProxyAreExtended(t *testing.T) {
	peer := localPeer
	peer.Trusted = true
	seen := func(chain, proto, host string) http.Header {
		return http.Header{"X-Forwarded-For": {chain}, "X-Forwarded-Proto": {proto}, "X-Forwarded-Host": {host}}
	}
	with := func(h http.Header, name, value string) http.Header { h[name] = []string{value}; return h }
	untouched := seen("192.0.2.7", "http", "game.example:8443")
	for _, c := range []struct {
		name         string
		client, want http.Header
		keep         []string
	}{
		{name: "nothing sent", want: untouched},
		{name: "all three sent", client: seen("203.0.113.9", "https", "a.example"), want: seen("203.0.113.9, 192.0.2.7", "https", "a.example")},
		{name: "chain in two lines", client: http.Header{"X-Forwarded-For": {"203.0.113.9, 198.51.100.1", "198.51.100.2"}},
			want: seen("203.0.113.9, 198.51.100.1, 198.51.100.2, 192.0.2.7", "http", "game.example:8443")},
		{name: "underscores are a client's", client: http.Header{"X_Forwarded_For": {"6.6.6.6"}, "X_Real_IP": {"6.6.6.6"}}, keep: []string{"X-Real-IP"}, want: untouched},
		{name: "Connection passed on from a client", client: http.Header{"Connection": {"X-Forwarded-For, X-Real-Ip"}, "X-Forwarded-For": {"203.0.113.9"}, "X-Real-Ip": {"203.0.113.9"}},
			keep: []string{"X-Real-IP"}, want: with(seen("203.0.113.9, 192.0.2.7", "http", "game.example:8443"), "X-Real-Ip", "203.0.113.9")},
		{name: "named by the operator", client: http.Header{"X-Forwarded-User": {"ann"}, "X-Real-Ip": {"203.0.113.9"}}, keep: []string{"x-forwarded-user"},
			want: with(seen("192.0.2.7", "http", "game.example:8443"), "X-Forwarded-User", "ann")},
		{name: "our own names are nobody's", client: http.Header{"Reseat-Player": {"root"}}, want: untouched},
	} {
		if got := RequestHeader(c.client, peer, c.keep, nil); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: the upstream sees %v, want %v", c.name, got, c.want)
		}
	}
}

// A game server that trusts one of these trusts any client: a proxy such as nginx passes
// on headers that it does not set itself.
func TestForwardedHeadersOfClientsAreNotTrusted(t *testing.T) {
	for _, name := range []string{
		"Proxy", "Forwarded", "X-Real-IP", "X-Forwarded-User", "X-Forwarded-Client-Cert", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Client-IP",
		"True-Client-IP", "CF-Connecting-IP", "CF-Connecting-IPv6", "Fastly-Client-IP", "X-Cluster-Client-IP", "X-Original-URL", "X-Rewrite-URL",
		"X-HTTP-Method-Override", "X-Method-Override", "Remote-User", "X-Remote-User", "X-Auth-Request-Email", "X-WebAuth-User", "SSL-Client-Cert",
		"X-SSL-Client-Verify", "X-Amzn-Oidc-Identity", "X-Goog-Authenticated-User-Email", "X-MS-Client-Principal-Name", "Tailscale-User-Login",
		"X-Scheme", "Front-End-Https", "X-Verified-User", "X-Consumer-Username", "X-Tailscale-User",
		"Proxy-Client-IP", "WL-Proxy-Client-IP", "Forwarded-For", "X-Host", "X-Original-Host", "X-Original-Method", "X-Envoy-Original-Path",
		"x_real_ip", "PROXY", "X_Original_URL", "cf_connecting_ip",
	} {
		for _, trusted := range []bool{false, true} {
			peer := localPeer
			peer.Trusted = trusted
			got := RequestHeader(http.Header{name: {"evil"}}, peer, nil, ownHeader)
			if !reflect.DeepEqual(got, wantOwn) {
				t.Errorf("%s, trusted %v: the upstream sees %v", name, trusted, got)
			}
		}
	}
}

// The gateway's own list of names that identify a client can never be complete.
func TestTrustedHeaderOfAnyNameIsNobodyElses(t *testing.T) {
	for name, passes := range map[string]bool{"X-Gate-Pass": true, "x-gate-pass": true, "X_Gate_Pass": false, "X-Gate_Pass": false} {
		for _, trusted := range []bool{false, true} {
			peer := localPeer
			peer.Trusted = trusted
			got := RequestHeader(http.Header{name: {"vip"}}, peer, []string{"X-Gate-Pass"}, nil)["X-Gate-Pass"]
			if want := trusted && passes; (got != nil) != want {
				t.Errorf("%s, trusted %v: the upstream sees %q", name, trusted, got)
			}
		}
	}
}

func TestForwardedForHasCanonicalPeerAddress(t *testing.T) {
	for addr, want := range map[string][]string{
		"192.0.2.7": {"192.0.2.7"}, "::ffff:192.0.2.7": {"192.0.2.7"}, "2001:db8::1": {"2001:db8::1"}, "fe80::1%eth0": {"fe80::1"},
	} {
		got := RequestHeader(nil, Peer{Addr: netip.MustParseAddr(addr)}, nil, nil)
		if !slices.Equal(got["X-Forwarded-For"], want) {
			t.Errorf("peer %s: X-Forwarded-For %q, want %q", addr, got["X-Forwarded-For"], want)
		}
	}
	got := RequestHeader(http.Header{"X-Forwarded-For": {"6.6.6.6"}}, Peer{TLS: true}, nil, nil)
	if want := (http.Header{"X-Forwarded-Proto": {"https"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("a peer without address and Host, over TLS: %v, want %v", got, want)
	}
}

func TestAnswerHeaderHidesHeadersForTheGateway(t *testing.T) {
	pass, d := AnswerHeader(http.Header{
		"Set-Cookie": {"a=1; Path=/", "b=2"}, "X-Game": {"hi"}, "Server": {"game/1"}, "Date": {"today"},
		"Reseat-Group": {"g1", "g2"}, "Reseat-Grace": {"20s"}, "Reseat-Overflow": {"end"}, "Reseat-Newest": {"a=A", "b=json:/b"}, "Reseat-Other": {"x"}, "Reseat_Group": {"x"},
		"Connection": {"Upgrade, X-Hop"}, "X-Hop": {"1"}, "Upgrade": {"websocket"}, "Keep-Alive": {"timeout=9"}, "Transfer-Encoding": {"chunked"},
		"Content-Length": {"0"}, "Trailer": {"X"}, "Proxy-Authenticate": {"Basic"},
		"Sec-Websocket-Accept": {"a"}, "Sec-Websocket-Protocol": {"p"}, "Sec-Websocket-Extensions": {""}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Else": {"x"},
	})
	want := http.Header{"Set-Cookie": {"a=1; Path=/", "b=2"}, "X-Game": {"hi"}, "Server": {"game/1"}, "Date": {"today"}}
	if !reflect.DeepEqual(pass, want) {
		t.Errorf("the client sees %v, want %v", pass, want)
	}
	if want := (Directives{Grace: "20s", Overflow: "end", Group: "g1", Newest: []string{"a=A", "b=json:/b"}}); !reflect.DeepEqual(d, want) {
		t.Errorf("directives %+v, want %+v", d, want)
	}
	if _, d := AnswerHeader(http.Header{"Connection": {"Reseat-Grace"}, "Reseat-Grace": {"5s"}}); d.Grace != "5s" {
		t.Errorf("a grace that Connection names is missing: %+v", d)
	}
	answer := http.Header{"X-Game": {"hi"}}
	shared, _ := AnswerHeader(answer)
	shared["X-Game"][0] = "changed"
	if answer.Get("X-Game") != "hi" {
		t.Error("a change of what passes changed the answer itself")
	}
	if pass, d := AnswerHeader(nil); len(pass) != 0 || !reflect.DeepEqual(d, Directives{}) {
		t.Errorf("nothing became %v, %+v", pass, d)
	}
}

func TestDropCookiesRemovesOnlyNamedCookies(t *testing.T) {
	for _, c := range []struct{ sent, want []string }{
		{nil, nil},
		{[]string{"a=1"}, []string{"a=1"}},
		{[]string{"a=1; ours=t; b=x=y"}, []string{"a=1; b=x=y"}},
		{[]string{"ours=t"}, nil},
		{[]string{"ours=t", "a=1;ours=u;b"}, []string{"a=1; b"}},
		{[]string{" ours =t; oursx=1; xours=2; ours"}, []string{"oursx=1; xours=2"}},
		{[]string{`a="q;ours=t;r"; b=2`}, []string{`a="q; r"; b=2`}},
	} {
		h := http.Header{"Cookie": c.sent, "X": {"y"}}
		before := slices.Clone(c.sent)
		DropCookies(h, func(name string) bool { return name == "ours" })
		if !slices.Equal(h["Cookie"], c.want) || h.Get("X") != "y" {
			t.Errorf("%q: got %q, want %q", c.sent, h["Cookie"], c.want)
		}
		if !slices.Equal(c.sent, before) {
			t.Errorf("%q: the caller's slice is changed", before)
		}
		if _, ok := h["Cookie"]; ok && c.want == nil {
			t.Errorf("%q: an empty Cookie header is left", c.sent)
		}
	}
}

func TestGameCookieWithSimilarNamePasses(t *testing.T) {
	h := http.Header{"Cookie": {"a=1; reseat-0123abcd=t; reseat-theme=dark; __Host-reseat-ffffffff=t; __Host-reseat-0123abcde=x; reseat-0123ABCD=y"}}
	DropOwnCookies(h)
	if got, want := h.Get("Cookie"), "a=1; reseat-theme=dark; __Host-reseat-0123abcde=x; reseat-0123ABCD=y"; got != want {
		t.Errorf("left %q, want %q", got, want)
	}
}
