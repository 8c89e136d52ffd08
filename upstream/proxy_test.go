package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestProxyAppliesTheHeaderPolicyUpward(t *testing.T) {
	for _, policy := range []HostPolicy{HostClient, HostUpstream} {
		want := http.Header{
			"Cookie": {"a=1"}, "Origin": {"https://game.example"}, "X-Custom": {"one", "two"},
			"X-Forwarded-For": {"192.0.2.7"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"game.example:8443"},
		}
		proxied(t, func(w http.ResponseWriter, r *http.Request) {
			if !reflect.DeepEqual(r.Header, want) {
				t.Errorf("the upstream sees %v, want %v", r.Header, want)
			}
			host := map[HostPolicy]string{HostClient: "game.example:8443", HostUpstream: "game:9000"}[policy]
			if r.Host != host || r.Method != "GET" {
				t.Errorf("the upstream sees %s with Host %q, want %q", r.Method, r.Host, host)
			}
		}, func(t *testing.T, r *rig) {
			r.proxy.target.HostPolicy = policy
			for _, evil := range []string{"", "Connection: Reseat-Session, X-Forwarded-For, X-Hop\r\nX-Hop: 1\r\n",
				"Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n", "TE: trailers\r\nKeep-Alive: 5\r\n",
				"Reseat-Session: evil\r\nReseat_Session: evil\r\nX-Forwarded-For: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n"} {
				r.ask(t, "GET /x HTTP/1.1\r\nHost: game.example:8443\r\nCookie: ours=t; a=1\r\nOrigin: https://game.example\r\nX-Custom: one\r\nX-Custom: two\r\n"+evil+"\r\n", 200, "")
			}
		})
	}
}

func TestProxyUsesHeadersOfTrustedProxy(t *testing.T) {
	proxied(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("X-Forwarded-For") + " " + r.Header.Get("X-Forwarded-Proto"); got != "203.0.113.9, 192.0.2.7 https" {
			t.Errorf("the upstream sees %q", got)
		}
	}, func(t *testing.T, r *rig) {
		r.proxy.opts.Trusted = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		r.ask(t, "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n\r\n", 200, "")
	})
}

func TestProxyKeepsPathAndQuery(t *testing.T) {
	proxied(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RequestURI) }, func(t *testing.T, r *rig) {
		for sent, want := range map[string]string{
			"/":                            "/base/",
			"/a%2Fb?q=%26%3d&z":            "/base/a%2Fb?q=%26%3d&z",
			"/x?a=1;b=2&c=%zz":             "/base/x?a=1;b=2&c=%zz",
			"/a|b`c?\"":                    "/base/a|b`c?\"",
			"//evil.example/x":             "/base//evil.example/x",
			"/@evil.example":               "/base/@evil.example",
			"/x#y":                         "/base/x%23y",
			"/x?":                          "/base/x?",
			"http://evil.example:1/p%2Fq?": "/base/p%2Fq?",
		} {
			r.ask(t, "GET "+sent+" HTTP/1.1\r\nHost: h\r\n\r\n", 200, want)
		}
	})
}

func TestProxyPassesTheAnswerUnchanged(t *testing.T) {
	sent := http.Header{
		"Set-Cookie": {"a=1", "b=2"}, "Location": {"http://127.0.0.1:1/other"}, "Content-Encoding": {"gzip"}, "Date": {"then"},
		"Content-Length": {"3"}, "Cache-Control": {"no-store"}, "Access-Control-Allow-Origin": {"*"}, "Sec-Websocket-Version": {"13"},
	}
	proxied(t, func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header["Accept-Encoding"]; ok {
			t.Errorf("Accept-Encoding was added: %v", r.Header)
		}
		for name, values := range sent {
			w.Header()[name] = values
		}
		w.Header()["Content-Type"] = nil
		w.Header()["Reseat-Group"] = []string{"g"}
		w.Header()["Reseat_Group"] = []string{"g"}
		w.Header()["Keep-Alive"] = []string{"timeout=9"}
		w.WriteHeader(302)
		io.WriteString(w, "\x1f\x8b\x08")
	}, func(t *testing.T, r *rig) {
		resp, err := r.Get("http://h/")
		r.wantAnswer(t, resp, err, 302, "\x1f\x8b\x08")
		if !reflect.DeepEqual(resp.Header, sent) {
			t.Errorf("the client sees %v, want %v", resp.Header, sent)
		}
		r.wantLog(t)
	})
}

func TestProxyPassesEveryMethod(t *testing.T) {
	proxied(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Saw", r.Method+" "+string(b))
	}, func(t *testing.T, r *rig) {
		for _, method := range []string{"HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			req, _ := http.NewRequest(method, "http://h/", strings.NewReader("body"))
			resp, err := r.Do(req)
			r.wantAnswer(t, resp, err, 200, "")
			if got := resp.Header.Get("X-Saw"); got != method+" body" {
				t.Errorf("the upstream saw %q, want %s with its body", got, method)
			}
		}
	})
}

func TestProxyRequestsBodyOnlyWhenUpstreamDoes(t *testing.T) {
	proxied(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/base/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	}, func(t *testing.T, r *rig) {
		const head = "Host: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
		r.ask(t, "POST /no HTTP/1.1\r\n"+head, 417, "")

		conn, br := r.raw(t, "POST /yes HTTP/1.1\r\n"+head)
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 100 {
			t.Fatalf("%v, %v; want 100", resp, err)
		}
		io.WriteString(conn, "body")
		r.wantReply(t, br, 200, "body")
	})
}

func TestProxyAddsNoContentType(t *testing.T) {
	proxiedTo(t, pipeTo(answering("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")), func(t *testing.T, r *rig) {
		resp, err := r.Get("http://h/")
		r.wantAnswer(t, resp, err, 200, "<html>")
		if got, ok := resp.Header["Content-Type"]; ok {
			t.Errorf("Content-Type %q was added", got)
		}
	})
}

func TestProxyDoesNotModifyItsRequest(t *testing.T) {
	proxied(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, r *rig) {
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/x", nil)
		req.Header = http.Header{"Cookie": {"ours=t; a=1"}, "Reseat-Session": {"x"}}
		before := req.Header.Clone()
		r.proxy.ServeHTTP(httptest.NewRecorder(), req)
		if !reflect.DeepEqual(req.Header, before) || req.URL.Path != "/x" {
			t.Errorf("the request became %s with %v", req.URL, req.Header)
		}
	})
}

func TestProxyDropsClientTrailers(t *testing.T) {
	proxied(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if len(r.Trailer) != 0 {
			t.Errorf("the upstream sees the trailers %v", r.Trailer)
		}
	}, func(t *testing.T, r *rig) {
		r.ask(t, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: Reseat-Session\r\n\r\n0\r\nReseat-Session: evil\r\n\r\n", 200, "")
	})
}

func TestProxyDoesNotTunnel(t *testing.T) {
	proxied(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the upstream saw %s %s", r.Method, r.RequestURI)
	}, func(t *testing.T, r *rig) {
		for head, status := range map[string]int{
			"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n":                             400,
			"POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c, WebSocket\r\nContent-Length: 0\r\n\r\n":  400,
			"CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n":                                          405,
			"CONNECT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: connect-udp\r\n\r\n": 405,
		} {
			conn, br := r.raw(t, head)
			if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != status {
				t.Errorf("%q: %v, %v; want %d", head, resp, err, status)
			}
			conn.Close()
		}
		r.wantLog(t)
	})
}

func TestProxyFailuresAreReturnedAndLoggedOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		dial   dialFunc
		status int
		body   string
		log    []string
	}{
		{"unreachable", func(context.Context) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}, 502, "the game server cannot be reached\n", []string{"kind=unreachable", `reason="connection refused"`}},
		{"slow to connect", func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
			504, "the game server did not answer in time\n", []string{"kind=timeout"}},
		{"hangs up", pipeTo(answering("")), 502, "the game server's answer is not valid\n", []string{"kind=bad_answer"}},
		{"garbage", pipeTo(answering("SSH-2.0-" + canary + "\r\n\r\n")), 502, "the game server's answer is not valid\n", []string{"kind=bad_answer"}},
		{"bad header", pipeTo(answering("HTTP/1.1 200 OK\r\n" + canary + "\r\n\r\n")), 502, "the game server's answer is not valid\n", []string{"kind=bad_answer"}},
		{"long head", pipeTo(answering("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", headLimit) + "\r\n\r\n")), 502, "the game server's answer is not valid\n", []string{"kind=bad_answer"}},
		{"switches protocols", pipeTo(func(conn net.Conn, r *http.Request) { io.WriteString(conn, switching(r)+"tunnel") }),
			502, "the game server's answer is not valid\n", []string{"kind=bad_answer", `reason="upstream switched protocols without a request"`}},
		{"101 without Upgrade", pipeTo(answering("HTTP/1.1 101 Fine\r\n\r\n")), 502, "the game server's answer is not valid\n", []string{"kind=bad_answer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxiedTo(t, c.dial, func(t *testing.T, r *rig) {
				begun := time.Now()
				resp, err := r.Get("http://h/match/7?token=" + canary)
				r.wantAnswer(t, resp, err, c.status, c.body)
				r.wantLog(t, append(c.log, "path=/match/7 ", "method=GET", "upstream=game:9000")...)
				if d := time.Since(begun); c.status == 504 && d != 10*time.Second {
					t.Errorf("it took %v, want the 10s of the dial timeout", d)
				}
			})
		})
	}
}

func TestProxyAbortsTruncatedAnswer(t *testing.T) {
	proxiedTo(t, pipeTo(answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n")), func(t *testing.T, r *rig) {
		resp, err := r.Get("http://h/x?" + canary)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); string(got) != "short" || err == nil {
			t.Errorf("the client got %q, %v; want an error after short", got, err)
		}
		r.wantLog(t, "path=/x ", "kind=bad_answer", `reason="connection closed before the answer was complete"`)
	})
}

func TestBrokenUploadIsTheClientsFault(t *testing.T) {
	proxied(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }, func(t *testing.T, r *rig) {
		_, br := r.raw(t, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n")
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 400 {
			t.Errorf("%v, %v; want 400", resp, err)
		}
		r.wantLog(t)
	})
}
